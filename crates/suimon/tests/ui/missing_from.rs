use suimon::NoLimit;

struct AppError;

#[suimon::consume(limiter = NoLimit)]
fn call() -> Result<u32, AppError> {
    Err(AppError)
}

#[suimon::consume(limiter = NoLimit)]
async fn call_async() -> Result<u32, AppError> {
    Err(AppError)
}

fn main() {
    let _ = (call(), call_async());
}
