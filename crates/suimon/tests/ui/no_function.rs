#![allow(unused_imports)]

use suimon::NoLimit;

#[suimon::consume(limiter = NoLimit)]
pub struct Client;

#[suimon::consume(limiter = NoLimit)]
impl Client {
    fn call(&self) {}
}

#[suimon::consume(limiter = NoLimit)]
const LIMIT: u32 = 3;

fn main() {
    Client.call();
    let _ = LIMIT;
}
