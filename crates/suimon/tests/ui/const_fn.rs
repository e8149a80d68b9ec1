#![allow(unused_imports)]

use suimon::NoLimit;

#[suimon::consume(limiter = NoLimit)]
pub const fn double(number: u32) -> u32 {
    number * 2
}

fn main() {
    let _ = double(1);
}
