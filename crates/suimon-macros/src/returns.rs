//! What a function gives back, as far as its signature tells.

use syn::{
    AngleBracketedGenericArguments, GenericArgument, PathArguments, PathSegment, ReturnType, Type, TypeParamBound,
};

/// How an error can reach the caller.
pub(crate) enum Returns<'a> {
    /// As the error of a type that is named `Result`.
    Result(&'a Type),
    /// Not at all.
    Plain,
}

impl<'a> Returns<'a> {
    pub(crate) fn of(output: &'a ReturnType) -> Returns<'a> {
        match output {
            ReturnType::Default => Returns::Plain,
            ReturnType::Type(_, output) => Returns::of_type(output),
        }
    }

    pub(crate) fn of_type(output: &'a Type) -> Returns<'a> {
        match last_segment(output) {
            Some(segment) if segment.ident == "Result" => Returns::Result(output),
            _ => Returns::Plain,
        }
    }
}

/// What the future resolves to that a function without `async` gives back:
/// `impl Future`, `Pin<Box<dyn Future>>`, `BoxFuture`.
pub(crate) struct FutureOutput<'a> {
    /// `None` is the unit type.
    pub(crate) output: Option<&'a Type>,
    /// A boxed future says nothing to the type inference of the block inside.
    pub(crate) boxed: bool,
}

impl<'a> FutureOutput<'a> {
    pub(crate) fn of(output: &'a ReturnType) -> Option<FutureOutput<'a>> {
        let ReturnType::Type(_, output) = output else {
            return None;
        };
        if let Type::ImplTrait(future) = bare(output) {
            return future.bounds.iter().find_map(future_bound).map(|output| FutureOutput { output, boxed: false });
        }
        let segment = last_segment(output)?;
        let boxed = |output| FutureOutput { output, boxed: true };
        if segment.ident == "BoxFuture" || segment.ident == "LocalBoxFuture" {
            return Some(boxed(type_arguments(segment).last()));
        }
        if segment.ident != "Pin" {
            return None;
        }
        let inside = last_segment(type_arguments(segment).next()?).filter(|segment| segment.ident == "Box")?;
        match bare(type_arguments(inside).next()?) {
            Type::TraitObject(object) => object.bounds.iter().find_map(future_bound).map(boxed),
            _ => None,
        }
    }
}

/// The output of a bound that is a `Future`.
fn future_bound(bound: &TypeParamBound) -> Option<Option<&Type>> {
    let TypeParamBound::Trait(bound) = bound else {
        return None;
    };
    let segment = bound.path.segments.last().filter(|segment| segment.ident == "Future")?;
    Some(arguments(segment).into_iter().flat_map(|arguments| &arguments.args).find_map(|argument| match argument {
        GenericArgument::AssocType(assigned) if assigned.ident == "Output" => Some(&assigned.ty),
        _ => None,
    }))
}

fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match bare(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

fn type_arguments(segment: &PathSegment) -> impl DoubleEndedIterator<Item = &Type> {
    arguments(segment).into_iter().flat_map(|arguments| &arguments.args).filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn arguments(segment: &PathSegment) -> Option<&AngleBracketedGenericArguments> {
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments),
        _ => None,
    }
}

/// The type within parentheses, also the invisible ones of a declarative macro.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        Type::Paren(paren) => bare(&paren.elem),
        ty => ty,
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_str;

    use super::*;

    fn output(text: &str) -> ReturnType {
        parse_str(&format!("-> {text}")).unwrap()
    }

    #[test]
    fn results_go_by_their_name() {
        for text in ["Result<u8, E>", "std::io::Result<()>", "(Result<(), E>)", "Result", "<A as B>::Result"] {
            assert!(matches!(Returns::of(&output(text)), Returns::Result(_)), "{text}");
        }
        for text in ["Option<Result<(), E>>", "ResultOf<u8>", "Result::Ok", "&Result<(), E>", "impl Try", "!", "()"] {
            assert!(matches!(Returns::of(&output(text)), Returns::Plain), "{text}");
        }
        assert!(matches!(Returns::of(&ReturnType::Default), Returns::Plain));
    }

    #[test]
    fn futures_go_by_their_form() {
        let result = |text: &str| {
            let output = output(text);
            let future = FutureOutput::of(&output)?;
            Some((future.output.is_some_and(|ty| matches!(Returns::of_type(ty), Returns::Result(_))), future.boxed))
        };
        for (text, expected) in [
            ("impl Future<Output = Result<u8, E>> + Send + 'a", Some((true, false))),
            ("impl Send + std::future::Future<Output = u8>", Some((false, false))),
            ("impl Future", Some((false, false))),
            ("Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>", Some((true, true))),
            ("std::pin::Pin<std::boxed::Box<(dyn Future<Output = ()>)>>", Some((false, true))),
            ("BoxFuture<'a, Result<(), E>>", Some((true, true))),
            ("futures::future::LocalBoxFuture<'_, ()>", Some((false, true))),
            ("Pin<Box<dyn Stream<Item = u8>>>", None),
            ("Pin<&mut T>", None),
            ("Pin", None),
            ("Box<dyn Future<Output = ()>>", None),
            ("impl Iterator<Item = u8>", None),
            ("Result<u8, E>", None),
        ] {
            assert_eq!(result(text), expected, "{text}");
        }
    }
}
