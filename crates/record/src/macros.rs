//! The macros: a `static` site per place, and a call. Without the feature `recording` they do nothing.
//!
//! Place in the flow: what programs write. Arguments are typed by [`Argument`](crate::Argument). One behind `||` is made only if a session records
//! the event and asks for details.

/// A scope until the end of the block: `let _step = scope!("step", step = 17);`. Its kind is `User`, or the one in front:
/// `scope!(Kind::Io, "read", bytes = count, path = || path.display().to_string())`.
#[macro_export]
macro_rules! scope {
    ($name:literal $(, $($rest:tt)*)?) => { $crate::scope!($crate::Kind::User, $name $(, $($rest)*)?) };
    ($kind:expr, $name:literal $(, $($rest:tt)*)?) => {{
        $crate::__site!(SITE, $kind, $name; $($($rest)*)?);
        let scope = $crate::__entered!(SITE);
        if scope.is_recorded() {
            $crate::__arguments!(scope, 0; $($($rest)*)?);
        }
        scope
    }};
}

/// A moment: `instant!("checkpoint", step = 17)`, with a kind in front as for [`scope!`].
#[macro_export]
macro_rules! instant {
    ($name:literal $(, $($rest:tt)*)?) => { $crate::instant!($crate::Kind::User, $name $(, $($rest)*)?) };
    ($kind:expr, $name:literal $(, $($rest:tt)*)?) => {{
        $crate::__site!(SITE, $kind, $name; $($($rest)*)?);
        if $crate::__wanted!(SITE) {
            $crate::__values!(SITE, []; $($($rest)*)?);
        }
    }};
}

/// The value of something from now on: `counter!("queue depth", depth)`.
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

/// A flow begins (`flow!(Out, "request", id)`), passes (`Step`) or ends (`In`) in the scope that is open.
#[macro_export]
macro_rules! flow {
    ($place:ident, $name:literal, $id:expr $(,)?) => {{
        $crate::__site!(SITE, $crate::Kind::User, $name;);
        if $crate::__wanted!(SITE) {
            $crate::event::flow(&SITE, $crate::event::FlowPlace::$place, $id);
        }
    }};
}

/// A span that may end on another thread: `let request = span!("request"); …; request.end();`.
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
    ($site:ident, $kind:expr, $name:literal; $($arguments:tt)*) => {
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

#[doc(hidden)]
#[macro_export]
macro_rules! __arguments {
    ($scope:ident, $at:expr;) => {};
    ($scope:ident, $at:expr; $key:ident = || $value:expr $(, $($rest:tt)*)?) => {
        if $scope.wants_details() {
            $scope.argument($at, &$value);
        }
        $crate::__arguments!($scope, $at + 1; $($($rest)*)?);
    };
    ($scope:ident, $at:expr; $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $scope.argument($at, &$value);
        $crate::__arguments!($scope, $at + 1; $($($rest)*)?);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __values {
    ($site:ident, [$($value:expr),*];) => { $crate::event::instant(&$site, &[$($crate::Argument::value(&$value)),*]) };
    ($site:ident, [$($done:expr),*]; $key:ident = || $value:expr $(, $($rest:tt)*)?) => {
        $crate::__values!($site, [$($done,)* $value]; $($($rest)*)?)
    };
    ($site:ident, [$($done:expr),*]; $key:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::__values!($site, [$($done,)* $value]; $($($rest)*)?)
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
