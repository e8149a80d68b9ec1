#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod expand;
mod function;
mod limit_text;
mod options;
mod returns;

use proc_macro::TokenStream;

#[doc = include_str!("consume.md")]
#[proc_macro_attribute]
pub fn consume(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(options.into(), &item.into()).into()
}
