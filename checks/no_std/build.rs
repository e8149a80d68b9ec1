//! The program has no standard library that would ask for the C library.

fn main() {
    println!("cargo::rustc-link-lib=c");
}
