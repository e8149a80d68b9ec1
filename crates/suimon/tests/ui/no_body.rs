#![allow(unused_imports)]

use suimon::NoLimit;

trait Client {
    #[suimon::consume(limiter = NoLimit)]
    fn call(&self);
}

impl Client for u8 {
    fn call(&self) {}
}

fn main() {
    1.call();
}
