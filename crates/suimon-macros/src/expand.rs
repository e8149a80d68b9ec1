//! The statement that is put before the body.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, GenericArgument, PathArguments, Type};

use crate::function::Function;
use crate::options::{Limiter, Options};
use crate::returns::{FutureOutput, Returns};

/// The function that waits first; or the item as it was, with an error beside it,
/// so that there are no further errors about a function that is missing.
pub(crate) fn expand(options: TokenStream, item: &TokenStream) -> TokenStream {
    limited(options, item.clone()).unwrap_or_else(|error| {
        let error = error.to_compile_error();
        quote!(#item #error)
    })
}

fn limited(options: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let mut function: Function = syn::parse2(item)?;
    let options: Options = syn::parse2(options)?;
    let name = function.signature.ident.to_string();

    if function.signature.asyncness.is_some() {
        let refusal = refusal(&options, &name, &Returns::of(&function.signature.output), None)?;
        function.prepend(statement(&options, true, &refusal));
    } else if let Some(future) = FutureOutput::of(&function.signature.output) {
        let returns = future.output.map_or(Returns::Plain, Returns::of_type);
        let written = future.output.filter(|_| future.boxed);
        let refusal = refusal(&options, &name, &returns, written)?;
        if !function.prepend_to_async_block(statement(&options, true, &refusal)) {
            return Err(Error::new(
                function.signature.ident.span(),
                format!(
                    "`{name}` is not `async` and returns a future, so waiting would block the thread of the caller: \
                     make it an `async fn`, or let its last expression be an `async move` block"
                ),
            ));
        }
    } else {
        let refusal = refusal(&options, &name, &Returns::of(&function.signature.output), None)?;
        function.prepend(statement(&options, false, &refusal));
    }
    Ok(function.into_token_stream())
}

/// Local variables of the expansion, and nothing of the caller's, have this span.
/// Paths are absolute, imports and statics lie in blocks of their own.
fn site() -> Span {
    Span::mixed_site()
}

/// One statement: takes the cost, or leaves the function.
fn statement(options: &Options, is_async: bool, refusal: &Refusal) -> TokenStream {
    let cost = request(options.cost.as_ref());
    let within = options.within.as_ref().map(|within| {
        quote_spanned! {site()=>
            let longest: ::core::time::Duration = #within;
            let request = ::suimon::__private::shorten(request, longest);
        }
    });
    let deadline = options.deadline.as_ref().map(|deadline| {
        quote_spanned! {site()=>
            let deadline: ::std::time::Instant = #deadline;
            let request = ::suimon::__private::shorten(request, ::suimon::__private::until(deadline));
        }
    });
    let limiter = limiter(&options.limiter);
    let verb = verb(&options.limiter, options.wait, is_async);
    let Refusal { pattern, leave } = refusal;
    // Everything is bound by `let`: temporaries of the caller's expressions, say
    // the guard of a lock, are gone before the wait begins.
    quote_spanned! {site()=>
        if let ::core::result::Result::Err(#pattern) = {
            let request = #cost;
            match request {
                ::core::result::Result::Ok(request) => {
                    #within
                    #deadline
                    let limiter = #limiter;
                    let outcome = { use ::suimon::Limiter as _; #verb };
                    outcome
                }
                ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
            }
        } {
            #leave
        }
    }
}

fn request(cost: Option<&Expr>) -> TokenStream {
    match cost {
        // The path lies where the expression does, and so does an error about its type.
        Some(cost) => {
            let convert = quote_spanned!(site().located_at(cost.span())=> ::suimon::IntoRequest::into_request);
            quote_spanned!(site()=> #convert(#cost))
        }
        None => quote_spanned!(site()=> ::suimon::IntoRequest::into_request(::suimon::Cost::ONE)),
    }
}

fn limiter(limiter: &Limiter) -> TokenStream {
    match limiter {
        Limiter::Given(limiter) => quote_spanned!(site()=> &(#limiter)),
        Limiter::Inline(text) => quote_spanned! {site()=> {
            static LIMITER: ::std::sync::LazyLock<::suimon::LocalLimiter> =
                ::std::sync::LazyLock::new(|| ::suimon::__private::limiter(#text));
            &*LIMITER
        }},
    }
}

fn verb(limiter: &Limiter, wait: bool, is_async: bool) -> TokenStream {
    // An error about a method that is not there points to the limiter.
    let here = match limiter {
        Limiter::Given(limiter) => site().located_at(limiter.span()),
        Limiter::Inline(_) => site(),
    };
    if !wait {
        let decision = quote_spanned!(here=> limiter.allow(request.cost()));
        return quote_spanned!(site()=> ::suimon::__private::allowed(#decision));
    }
    if is_async {
        quote_spanned!(here=> limiter.consume_async(request).await)
    } else {
        quote_spanned!(here=> limiter.consume(request))
    }
}

/// How the function is left without its body having run.
struct Refusal {
    pattern: TokenStream,
    leave: TokenStream,
}

/// `written` is the type that has to be written out, because nothing else tells it.
fn refusal(options: &Options, name: &str, returns: &Returns<'_>, written: Option<&Type>) -> Result<Refusal, Error> {
    let error = quote_spanned!(site()=> error);
    if let Some(value) = &options.or {
        let value = typed(quote!(#value), written);
        // `or = ()` and `or = panic!(..)` are all right, though `return` makes them look odd.
        let leave = quote_spanned! {site()=>
            #[allow(unreachable_code, clippy::unused_unit, clippy::diverging_sub_expression)]
            return #value;
        };
        return Ok(Refusal { pattern: quote_spanned!(site()=> _), leave });
    }
    match (returns, &options.refuses) {
        (Returns::Result(output), _) => {
            let from = quote_spanned!(site().located_at(error_span(output))=> ::core::convert::From::from(error));
            let value = typed(quote_spanned!(site()=> ::core::result::Result::Err(#from)), written);
            Ok(Refusal { pattern: error, leave: quote_spanned!(site()=> return #value;) })
        }
        (Returns::Plain, None) => Ok(Refusal {
            pattern: error,
            leave: quote_spanned! {site()=>
                ::suimon::__private::broken(::core::concat!(::core::module_path!(), "::", #name), &error)
            },
        }),
        (Returns::Plain, Some(option)) => Err(Error::new(
            option.span(),
            format!(
                "with `{refuser}` the limit may refuse, and `{name}` returns no `Result` that could say so: \
                 return one whose error is `From<suimon::Error>`, or give the value to return instead, `or = ...`",
                refuser = if options.wait { option.to_string() } else { "wait = false".to_owned() }
            ),
        )),
    }
}

fn typed(value: TokenStream, written: Option<&Type>) -> TokenStream {
    match written {
        Some(ty) => quote_spanned!(site()=> { let value: #ty = #value; value }),
        None => value,
    }
}

/// Where the error type of a `Result` is written, or at least the `Result`.
fn error_span(output: &Type) -> Span {
    let Type::Path(path) = output else {
        return output.span();
    };
    let Some(PathArguments::AngleBracketed(arguments)) = path.path.segments.last().map(|last| &last.arguments) else {
        return output.span();
    };
    match arguments.args.last() {
        Some(GenericArgument::Type(error)) if arguments.args.len() > 1 => error.span(),
        _ => output.span(),
    }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
