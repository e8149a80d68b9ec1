use proptest::prelude::*;
use syn::{ImplItemFn, ItemFn, parse_str};

use super::*;

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

fn expanded(options: &str, item: &str) -> String {
    expand(tokens(options), &tokens(item)).to_string()
}

#[track_caller]
fn refused(options: &str, item: &str, part: &str) {
    let text = expanded(options, item);
    assert!(text.starts_with(&tokens(item).to_string()), "the item is kept: {text}");
    assert!(text.contains("compile_error"), "{text}");
    assert!(text.contains(part), "{text}");
}

#[test]
fn what_cannot_be_limited() {
    refused("\"pace 1/s\"", "struct Call;", "goes on a function or method");
    refused("\"pace 1/s\"", "pub const CALLS: u8 = 3;", "goes on a function or method");
    refused("\"pace 1/s\"", "impl Call { fn call() {} }", "goes on a function or method");
    refused("\"pace 1/s\"", "pub const fn call() {}", "a `const fn` cannot wait");
    refused("\"pace 1/s\"", "fn call(&self);", "`call` has no body");
    refused("", "fn call() {}", "a limiter is missing");
}

#[test]
fn a_refusal_needs_a_way_out() {
    for option in ["wait = false", "within = w", "deadline = d"] {
        let options = format!("limiter = l, {option}");
        for output in ["", "-> u8", "-> Option<u8>", "-> Outcome<u8>", "-> impl Iterator<Item = Result<u8, E>>"] {
            let item = format!("fn call() {output} {{ body() }}");
            refused(&options, &item, "returns no `Result` that could say so");
            assert!(!expanded(&format!("{options}, or = other()"), &item).contains("compile_error"));
        }
        for output in ["-> Result<u8, E>", "-> anyhow::Result<()>", "-> (io::Result<u8>)"] {
            assert!(!expanded(&options, &format!("fn call() {output} {{ body() }}")).contains("compile_error"));
        }
    }
}

#[test]
fn a_future_that_cannot_wait_itself() {
    for output in ["impl Future<Output = ()>", "Pin<Box<dyn Future<Output = Result<(), E>>>>", "BoxFuture<'_, ()>"] {
        refused("limiter = l", &format!("fn call() -> {output} {{ other() }}"), "is not `async` and returns a future");
        refused("limiter = l", &format!("fn call() -> {output} {{ async {{}}; }}"), "make it an `async fn`");
        for last in ["async move { body() }", "Box::pin(async move { body() })", "(async { body() }).boxed()"] {
            let text = expanded("limiter = l", &format!("fn call() -> {output} {{ first(); {last} }}"));
            let (first, wait, body) = (text.find("first ()"), text.find("consume_async"), text.find("body ()"));
            assert!(first < wait && wait < body && first.is_some(), "{text}");
        }
    }
}

#[test]
fn inner_attributes_stay_first() {
    let text = expanded("limiter = l", "fn call() { #![allow(dead_code)] //! about\n body() }");
    assert!(text.starts_with("fn call () { # ! [allow (dead_code)]"), "{text}");
    assert!(parse_str::<ItemFn>(&text).unwrap().attrs.len() == 2, "{text}");
}

const OPTIONS: [&str; 5] = [
    "\"pace 60/min\"",
    "limiter = self.limiter, cost = text.len()",
    "limiter = L, wait = false, or = Default::default()",
    "limiter = pick(|l| l), within = longest, or = { log(); return give_up() }",
    "\"bucket 1/s\", deadline = at, or = x, cost = if y { 1 } else { 2 }",
];

proptest! {
    /// Everything of the function is as it was, and the body is its end.
    #[test]
    fn only_the_begin_of_the_body_is_new(
        attributes in "(#\\[inline\\] )?(/// Calls\\.\n)?(#\\[cfg\\(all\\(\\)\\)\\] )?",
        visibility in "(pub|pub\\(crate\\)|pub\\(in a::b\\))?",
        qualifiers in "(async )?(unsafe )?(extern \"C\" )?",
        generics in "(<'a, T: Into<u8> \\+ 'a, const N: usize>)?",
        receiver in "(self, |&self, |&'a mut self, |mut self: Pin<&mut Self>, |self: Arc<Self>, )",
        output in "(-> (u8|&str|impl Fn\\(u8\\) -> T|!|Result<T, E>|\\[T; N\\]) )?",
        bounds in "(where T: Copy, \\[u8; N\\]: Sized )?",
        body in "(const X: u8 = 1;)?(let x = self;)?( loop \\{ break 'a y\\? \\})?( x\\.await)?",
        options in prop::sample::select(OPTIONS.to_vec()),
    ) {
        let head = format!("{attributes}{visibility} {qualifiers}fn call{generics}({receiver}(a, _): (u8, T)) {output}{bounds}");
        let before: ImplItemFn = parse_str(&format!("{head}{{ }}")).unwrap();
        let text = expanded(options, &format!("{head}{{{body}}}"));
        prop_assert!(!text.contains("compile_error"), "{}", text);

        let after: ImplItemFn = parse_str(&text).unwrap();
        prop_assert_eq!(shown(&after.attrs), shown(&before.attrs));
        prop_assert_eq!(shown([&after.vis]), shown([&before.vis]));
        prop_assert_eq!(shown([&after.sig]), shown([&before.sig]));
        prop_assert_eq!(after.block.stmts.len(), 2, "{}", text);
        prop_assert_eq!(shown(&after.block.stmts[1..]), tokens(&format!("{{ {body} }}")).to_string());
        prop_assert_eq!(text.contains("consume_async"), before.sig.asyncness.is_some() && !options.contains("false"));
    }

    /// Tokens in a mess: code or an error, never a panic.
    #[test]
    fn any_item(words in prop::collection::vec(prop::sample::select(MESS.to_vec()), 0..12)) {
        let text = expanded("\"pace 1/s\"", &words.join(" "));
        prop_assert!(text.contains("compile_error") || text.contains("consume"), "{}", text);
    }
}

fn shown<T: ToTokens>(parts: impl IntoIterator<Item = T>) -> String {
    parts.into_iter().map(|part| part.into_token_stream().to_string()).collect()
}

const MESS: [&str; 18] = [
    "fn",
    "call",
    "()",
    "{}",
    "{ async {} }",
    "->",
    "impl",
    "Future",
    "Pin<Box<dyn Future>>",
    "Result",
    "<'a>",
    "const",
    "async",
    "pub",
    "#[a]",
    ";",
    "where",
    "{ #![b] }",
];
