#![allow(unused_imports)]

use std::future::{Future, Ready, ready};
use std::pin::Pin;

use suimon::NoLimit;

#[suimon::consume(limiter = NoLimit)]
fn opaque() -> impl Future<Output = u8> {
    ready(1)
}

#[suimon::consume(limiter = NoLimit)]
fn boxed() -> Pin<Box<dyn Future<Output = u8>>> {
    let future: Ready<u8> = ready(1);
    Box::pin(future)
}

fn main() {
    let _ = (opaque(), boxed());
}
