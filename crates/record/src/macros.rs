//! The recording macros, each of which expands to one `static` site and a call. Without the feature
//! `recording` they do nothing.
//!
//! [`Argument`](crate::Argument) defines the types of arguments. An argument behind `||` is
//! evaluated only if a session records the event and asks for details of its group
//! ([`Builder::details`](crate::Builder::details)).

/// Opens a scope until the end of the block: `let _step = scope!("step", step = 17);`. Its kind is
/// `User`, or the one in front: `scope!(Kind::Io, "read", bytes = count, path = ||
/// path.display().to_string())`.
#[macro_export]
macro_rules! scope {
    ($name:literal $(, $($rest:tt)*)?) => { $crate::scope!($crate::Kind::User, $name $(, $($rest)*)?) };
    ($kind:expr, $name:literal $(, $($rest:tt)*)?) => {{
        $crate::__site!(SITE, $kind, $name; $($($rest)*)?);
        $crate::__scope!(SITE, 0, [], []; $($($rest)*)?)
    }};
}

/// Records an instant: `instant!("checkpoint", step = 17)`, with a kind in front as for [`scope!`].
#[macro_export]
macro_rules! instant {
    ($name:literal $(, $($rest:tt)*)?) => { $crate::instant!($crate::Kind::User, $name $(, $($rest)*)?) };
    ($kind:expr, $name:literal $(, $($rest:tt)*)?) => {{
        $crate::__site!(SITE, $kind, $name; $($($rest)*)?);
        if $crate::__wanted!(SITE) {
            $crate::event::instant(&SITE, &$crate::__values!([], 0; $($($rest)*)?));
        }
    }};
}

/// Records the new value of a counter: `counter!("queue depth", depth)`.
#[macro_export]
macro_rules! counter {
    ($name:literal, $value:expr $(,)?) => { $crate::counter!($crate::Kind::User, $name, $value) };
    ($kind:expr, $name:literal, $value:expr $(,)?) => {{
        $crate::__site!(SITE, $kind, $name;);
        if $crate::__wanted!(SITE) {
            $crate::event::counter(&SITE, ($value) as f64);
        }
    }};
}

/// Begins (`flow!(Out, "request", id)`), passes (`Step`) or ends (`In`) a flow in the open scope.
#[macro_export]
macro_rules! flow {
    ($place:ident, $name:literal, $id:expr $(,)?) => {{
        $crate::__site!(SITE, $crate::Kind::User, $name;);
        if $crate::__wanted!(SITE) {
            $crate::event::flow(&SITE, $crate::event::FlowPlace::$place, $id);
        }
    }};
}

/// Begins a span that may end on another thread: `let request = span!("request"); …;
/// request.end();`.
#[macro_export]
macro_rules! span {
    ($name:literal $(,)?) => { $crate::span!($crate::Kind::User, $name) };
    ($kind:expr, $name:literal $(,)?) => {{
        $crate::__site!(SITE, $kind, $name;);
        $crate::__begun!(SITE)
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($site:ident, $kind:expr, $name:expr; $($arguments:tt)*) => {
        static $site: $crate::Site =
            $crate::Site::new($name, $kind, file!(), line!(), $crate::__keys!([]; $($arguments)*));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __keys {
    ([$($key:expr),*];) => { &[$($key),*] };
    ([$($done:expr),*]; $key:ident = || $value:expr $(, $($rest:tt)*)?) => {
        $crate::__keys!([$($done,)* stringify!($key)]; $($($rest)*)?)
    };
    ([$($done:expr),*]; $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__keys!([$($done,)* stringify!($key)]; $($($rest)*)?)
    };
}

/// Arguments of a scope, separated into those evaluated at once and those behind `||`, each with
/// its place among the keys.
#[doc(hidden)]
#[macro_export]
macro_rules! __scope {
    ($site:ident, $at:expr, [], [];) => {
        $crate::__entered!($site)
    };
    ($site:ident, $at:expr, [$(($place_ready:expr, $ready:expr))*], [$(($place:expr, $lazy:expr))*];) => {
        if $crate::__wanted!($site) {
            let scope = $crate::Scope::enter_with(&$site, &$crate::__list!($(($place_ready, $ready))*));
            $(if scope.wants_detail($place) {
                scope.argument($place, &$lazy);
            })*
            scope
        } else {
            $crate::Scope::nowhere(&$site)
        }
    };
    ($site:ident, $at:expr, [$($ready:tt)*], [$($later:tt)*]; $key:ident = || $value:expr $(, $($rest:tt)*)?) => {
        $crate::__scope!($site, $at + 1, [$($ready)*], [$($later)* ($at, $value)]; $($($rest)*)?)
    };
    ($site:ident, $at:expr, [$($ready:tt)*], [$($later:tt)*]; $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__scope!($site, $at + 1, [$($ready)* ($at, $value)], [$($later)*]; $($($rest)*)?)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __values {
    ([$($done:tt)*], $at:expr;) => { $crate::__list!($($done)*) };
    ([$($done:tt)*], $at:expr; $key:ident = || $value:expr $(, $($rest:tt)*)?) => {
        $crate::__values!([$($done)* ($at, $value)], $at + 1; $($($rest)*)?)
    };
    ([$($done:tt)*], $at:expr; $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__values!([$($done)* ($at, $value)], $at + 1; $($($rest)*)?)
    };
}

/// Returns places and values as [`Arguments`](crate::Arguments).
#[doc(hidden)]
#[macro_export]
macro_rules! __list {
    () => { () };
    (($place:expr, $value:expr) $($rest:tt)*) => {
        ((($place) | $crate::event::OF_SITE, &$value), $crate::__list!($($rest)*))
    };
}

#[cfg(feature = "recording")]
#[doc(hidden)]
#[macro_export]
macro_rules! __entered {
    ($site:ident) => {
        $crate::Scope::enter(&$site)
    };
}

#[cfg(not(feature = "recording"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __entered {
    ($site:ident) => {
        $crate::Scope::nowhere(&$site)
    };
}

#[cfg(feature = "recording")]
#[doc(hidden)]
#[macro_export]
macro_rules! __wanted {
    ($site:ident) => {
        $crate::event::is_wanted(&$site)
    };
}

#[cfg(not(feature = "recording"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __wanted {
    ($site:ident) => {
        false
    };
}

#[cfg(feature = "recording")]
#[doc(hidden)]
#[macro_export]
macro_rules! __begun {
    ($site:ident) => {
        $crate::event::Span::begin(&$site)
    };
}

#[cfg(not(feature = "recording"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __begun {
    ($site:ident) => {
        $crate::event::Span::nowhere(&$site)
    };
}
