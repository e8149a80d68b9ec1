//! The function under the attribute. Its body is not looked into unless it has to be.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, Block, Error, Expr, Signature, Stmt, Token, Visibility};

/// A function with a body, in the parts that are written out again unchanged.
pub(crate) struct Function {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    pub(crate) signature: Signature,
    /// `#![...]` at the begin of the body, which has to stay first.
    inner: Vec<Attribute>,
    body: Body,
}

struct Body {
    tokens: TokenStream,
    braces: Span,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Function, Error> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        // The compiler has read the item already, so what is not read here is no function.
        let begin = input.span();
        let signature: Signature = input
            .parse()
            .map_err(|_| Error::new(begin, "`#[suimon::consume]` goes on a function or method, and this is neither"))?;
        if let Some(constness) = &signature.constness {
            return Err(Error::new_spanned(
                constness,
                "a `const fn` cannot wait for a limit: take `const` away, or limit the functions that call it",
            ));
        }
        if input.peek(Token![;]) {
            return Err(Error::new(
                signature.ident.span(),
                format!(
                    "`{}` has no body that could wait for the limit: put `#[suimon::consume]` on the methods that implement it",
                    signature.ident
                ),
            ));
        }
        let braces: Group = input.parse()?;
        let (inner, tokens) = split_inner.parse2(braces.stream())?;
        Ok(Function { attributes, visibility, signature, inner, body: Body { tokens, braces: braces.span() } })
    }
}

fn split_inner(body: ParseStream<'_>) -> Result<(Vec<Attribute>, TokenStream), Error> {
    Ok((body.call(Attribute::parse_inner)?, body.parse()?))
}

impl Function {
    /// Puts a statement before the body, which becomes a block of its own: its
    /// items and imports are not seen by the statement, and are still its first lines.
    pub(crate) fn prepend(&mut self, statement: TokenStream) {
        let body = std::mem::replace(&mut self.body.tokens, statement);
        self.body.tokens.extend([in_braces(body, added(self.body.braces))]);
    }

    /// Puts a statement before those of the `async` block that is the body's last
    /// expression; `false` where there is none.
    pub(crate) fn prepend_to_async_block(&mut self, statement: TokenStream) -> bool {
        let Ok(mut body) = Block::parse_within.parse2(self.body.tokens.clone()) else {
            return false;
        };
        let Some(Stmt::Expr(last, None)) = body.last_mut() else {
            return false;
        };
        let Some(block) = async_block(last) else {
            return false;
        };
        let stmts = std::mem::take(&mut block.stmts);
        let inside = in_braces(quote!(#(#stmts)*), added(block.brace_token.span.join()));
        block.stmts =
            vec![Stmt::Expr(Expr::Verbatim(statement), None), Stmt::Expr(Expr::Verbatim(inside.into()), None)];
        self.body.tokens = quote!(#(#body)*);
        true
    }
}

/// Braces that nobody has written, and no lint has to find superfluous.
fn added(written: Span) -> Span {
    Span::mixed_site().located_at(written)
}

fn in_braces(tokens: TokenStream, span: Span) -> TokenTree {
    let mut braces = Group::new(Delimiter::Brace, tokens);
    braces.set_span(span);
    TokenTree::Group(braces)
}

/// The block of `async { .. }`, `Box::pin(async { .. })` or `async { .. }.boxed()`.
fn async_block(expression: &mut Expr) -> Option<&mut Block> {
    match expression {
        Expr::Async(future) => Some(&mut future.block),
        Expr::Call(call) if call.args.len() == 1 => async_block(call.args.first_mut()?),
        Expr::MethodCall(call) if call.args.is_empty() => async_block(&mut call.receiver),
        Expr::Paren(paren) => async_block(&mut paren.expr),
        Expr::Group(group) => async_block(&mut group.expr),
        _ => None,
    }
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Function { attributes, visibility, signature, inner, body } = self;
        let statements = &body.tokens;
        tokens.extend(quote!(#(#attributes)* #visibility #signature));
        tokens.extend([in_braces(quote!(#(#inner)* #statements), body.braces)]);
    }
}
