//! The method that is called, and the types of its messages.

use std::path::Path;

use prost_reflect::{DescriptorPool, MessageDescriptor, MethodDescriptor};

use super::super::DriverError;

/// How a URL names a method.
const FORM: &str = "grpc://host:50051/package.Service/Method";

/// The names in a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// With its package; empty where the URL names none.
    pub(super) service: String,
    pub(super) method: String,
}

impl Name {
    /// The names of a path: `/package.Service/Method`.
    ///
    /// # Errors
    ///
    /// When it has another form. An empty one has empty names.
    pub(super) fn of(path: &str) -> Result<Self, DriverError> {
        let path = path.trim_matches('/');
        let (service, method) = path.split_once('/').unwrap_or((path, ""));
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if !service.chars().all(word) || !method.chars().all(|c| word(c) && c != '.') {
            return Err(DriverError::new(
                "url",
                format!("its path is {path:?}"),
                "wanted a service and its method",
                FORM,
            ));
        }
        Ok(Self {
            service: service.to_owned(),
            method: method.to_owned(),
        })
    }
}

/// A method, with the types of its messages.
#[derive(Debug, Clone)]
pub(super) struct Method(MethodDescriptor);

impl Method {
    /// The method of a `.proto` file. Files that it imports are looked for beside it.
    ///
    /// # Errors
    ///
    /// When the file is wrong, or has no such method.
    pub(super) fn of_file(name: &Name, file: &str) -> Result<Self, DriverError> {
        let wrong = |error: String| {
            DriverError::new(
                "proto",
                error,
                "wanted a file that describes the service",
                "imported files are looked for beside it",
            )
        };
        let path = Path::new(file);
        if !path.is_file() {
            return Err(wrong(format!("{file} is no file")));
        }
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let set = protox::compile([path], [folder]).map_err(|error| wrong(format!("{error:?}")))?;
        let pool = DescriptorPool::from_file_descriptor_set(set)
            .map_err(|error| wrong(format!("{file}: {error}")))?;
        Self::of_pool(name, &pool, &format!("{file} has"))
    }

    /// The method among those that are known. `who` has them, in words with a verb.
    pub(super) fn of_pool(
        name: &Name,
        pool: &DescriptorPool,
        who: &str,
    ) -> Result<Self, DriverError> {
        let services: Vec<String> = pool
            .services()
            .map(|it| it.full_name().to_owned())
            .collect();
        let Some(service) = pool.get_service_by_name(&name.service) else {
            return Err(no_service(name, services.iter().map(String::as_str), who));
        };
        let method = service.methods().find(|it| it.name() == name.method);
        method.map(Self).ok_or_else(|| {
            let known = service.methods().map(|it| it.name().to_owned());
            let wrong = match name.method.as_str() {
                "" => "its path names no method".to_owned(),
                other => format!("{} has no method {other:?}", name.service),
            };
            DriverError::new(
                "url",
                wrong,
                format!("wanted one of {}", known.collect::<Vec<_>>().join(", ")),
                FORM,
            )
        })
    }

    pub(super) fn input(&self) -> MessageDescriptor {
        self.0.input()
    }

    /// The name of the type of its requests.
    pub(super) fn input_name(&self) -> String {
        self.0.input().full_name().to_owned()
    }

    /// True if a request may be several messages.
    pub(super) fn takes_stream(&self) -> bool {
        self.0.is_client_streaming()
    }

    /// True if a reply may be several messages.
    pub(super) fn streams_replies(&self) -> bool {
        self.0.is_server_streaming()
    }
}

/// Says which services there are where the URL names none of them.
pub(super) fn no_service<'a>(
    name: &Name,
    services: impl Iterator<Item = &'a str>,
    who: &str,
) -> DriverError {
    let wrong = match name.service.as_str() {
        "" => "its path names no service".to_owned(),
        other => format!("{who} no service {other:?}"),
    };
    let services: Vec<&str> = services.collect();
    let wanted = match services.is_empty() {
        true => "wanted a service and its method".to_owned(),
        false => format!("wanted one of {}", services.join(", ")),
    };
    DriverError::new("url", wrong, wanted, FORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_service_and_its_method() {
        let name = Name::of("/pkg.v1.Greeter/SayHello").unwrap();
        let found = (name.service.as_str(), name.method.as_str());
        assert_eq!(found, ("pkg.v1.Greeter", "SayHello"));
        assert_eq!(Name::of("").unwrap().service, "");
        assert_eq!(Name::of("/Greeter/").unwrap().method, "");
        for path in ["/a/b/c", "/a b/c", "/{key}/c", "/a/b.c"] {
            assert!(Name::of(path).is_err(), "{path}");
        }
    }
}
