//! A database that is asked in SQL: statements are prepared once on each connection, and places for
//! values are their parameters.
//!
//! An operation of several statements sends each of them after the reply to the one before, as a
//! client does that looks at what it reads. A connection carries one operation at a time.

mod connection;
mod mysql;
mod postgres;
mod turns;

use std::sync::Arc;

use unruly_plan::{Portion, Script};

use self::connection::Connection;
use super::template::{Data, Escape, Parameter, Template, Turn};
use super::{Driver, DriverError, Protocol, Settings, places_by, without_level};
use crate::link::Place;
use crate::target::{Operation, Outgoing, Target};

const POSTGRES_PORT: u16 = 5_432;
const MYSQL_PORT: u16 = 3_306;

/// Longest text of an error that is kept.
const WORDS_BYTES: usize = 300;

/// Parameters of one statement, at most.
const PLACES_MAX: usize = 65_535;

/// The driver of PostgreSQL.
pub(super) fn postgres(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    let login = Login::of(settings)?;
    let script = Prepared::of(settings, |number| format!("${number}"))?;
    let secure = is_secure(settings)?;
    let asking = Arc::new(postgres::Asking::new(login, script, secure)?);
    let target = {
        let asking = Arc::clone(&asking);
        move || Box::new(Connection(postgres::Session::new(Arc::clone(&asking)))) as Box<dyn Target>
    };
    Ok(Box::new(Sql {
        places: places(settings, POSTGRES_PORT)?,
        about: asking.script().data.as_deref().map(Data::about),
        target: Box::new(target),
    }))
}

/// The driver of MySQL and MariaDB.
pub(super) fn mysql(settings: &Settings<'_>) -> Result<Box<dyn Driver>, DriverError> {
    without_level(settings)?;
    let login = Login::of(settings)?;
    let script = Prepared::of(settings, |_| "?".to_owned())?;
    let about = script.data.as_deref().map(Data::about);
    let secure = is_secure(settings)?;
    let asking = Arc::new(mysql::Asking {
        login,
        script,
        secure,
    });
    let target =
        move || Box::new(Connection(mysql::Session::new(Arc::clone(&asking)))) as Box<dyn Target>;
    Ok(Box::new(Sql {
        places: places(settings, MYSQL_PORT)?,
        about,
        target: Box::new(target),
    }))
}

/// The servers of a URL. With TLS a connection begins in the clear.
fn places(settings: &Settings<'_>, port: u16) -> Result<Vec<Place>, DriverError> {
    let found = places_by(settings, port, port, Protocol::None)?;
    let begun = found.into_iter().map(|place| match place {
        Place::Secure(address, client) => Place::Upgraded(address, client),
        other => other,
    });
    Ok(begun.collect())
}

/// Whether the connections speak TLS.
fn is_secure(settings: &Settings<'_>) -> Result<bool, DriverError> {
    let url = &settings.store.url;
    match url.option("tls") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(word) => Err(DriverError::new(
            "url",
            format!("tls is {word:?}"),
            "wanted true or false",
            format!("{}://user@host/database?tls=true", url.scheme),
        )),
    }
}

struct Sql {
    places: Vec<Place>,
    about: Option<String>,
    target: Box<dyn Fn() -> Box<dyn Target> + Send>,
}

impl Driver for Sql {
    fn places(&self) -> &[Place] {
        &self.places
    }

    fn target(&self, _place: usize) -> Box<dyn Target> {
        (self.target)()
    }

    fn about(&self) -> Option<String> {
        self.about.clone()
    }
}

/// Who is let in, and to what.
pub(super) struct Login {
    user: String,
    database: String,
    password: Option<String>,
}

impl Login {
    fn of(settings: &Settings<'_>) -> Result<Self, DriverError> {
        let url = &settings.store.url;
        let wrong = |wrong: &str| {
            DriverError::new(
                "url",
                wrong,
                "wanted a user and a database",
                format!("{}://user@host/database", url.scheme),
            )
        };
        let database = url.path.trim_start_matches('/');
        if url.user.is_empty() {
            return Err(wrong("it names no user"));
        }
        if url.user.contains('\0') {
            return Err(wrong("its user holds a zero byte"));
        }
        if database.is_empty() || database.contains('/') {
            return Err(wrong("its path is no name of a database"));
        }
        Ok(Self {
            user: url.user.clone(),
            database: database.to_owned(),
            password: settings.password.map(|it| it.reveal().to_owned()),
        })
    }
}

/// The operations of a plan, as a database has them.
pub(super) struct Prepared {
    /// Each different statement once.
    texts: Vec<String>,
    operations: Vec<Vec<Statement>>,
    data: Option<Arc<Data>>,
    seed: u64,
    portion: Portion,
}

struct Statement {
    /// Its place among the texts.
    text: usize,
    values: Template,
}

impl Prepared {
    /// The operations of a plan. `parameter` names a parameter by its number from 1.
    fn of(
        settings: &Settings<'_>,
        parameter: impl Fn(usize) -> String,
    ) -> Result<Self, DriverError> {
        let sql = settings.store.sql.as_ref().ok_or_else(|| {
            DriverError::new(
                "sql",
                "it is missing",
                "wanted the statements that the clients send",
                "see unruly/docs/sql.md",
            )
        })?;
        let data = sql.data.as_deref().map(Data::read).transpose()?;
        let mut prepared = Self {
            texts: Vec::new(),
            operations: Vec::new(),
            data: data.map(Arc::new),
            seed: settings.seed,
            portion: settings.portion,
        };
        prepared.take(&sql.script, parameter)?;
        prepared.check_use(sql.data.as_deref())?;
        Ok(prepared)
    }

    fn take(
        &mut self,
        script: &Script,
        parameter: impl Fn(usize) -> String,
    ) -> Result<(), DriverError> {
        for operation in script.operations() {
            let mut statements = Vec::new();
            for statement in &operation.statements {
                let data = self.data.as_deref();
                let values = Template::parse("sql", statement, Escape::Body, data)?;
                if values.places() > PLACES_MAX {
                    return Err(DriverError::new(
                        "sql",
                        format!("a statement has {} places for values", values.places()),
                        format!("wanted at most {PLACES_MAX}"),
                        "write several statements",
                    ));
                }
                let text = values.with_parameters(&parameter);
                let known = self.texts.iter().position(|it| *it == text);
                let text = known.unwrap_or_else(|| {
                    self.texts.push(text);
                    self.texts.len() - 1
                });
                statements.push(Statement { text, values });
            }
            self.operations.push(statements);
        }
        Ok(())
    }

    /// Refuses a data file of which nothing is sent.
    fn check_use(&self, file: Option<&str>) -> Result<(), DriverError> {
        let mut statements = self.operations.iter().flatten();
        match file {
            Some(file) if !statements.any(|it| it.values.has_data()) => Err(DriverError::new(
                "data",
                format!("no value of {file} is sent"),
                "wanted {data.COLUMN} in a statement",
                "see unruly/docs/sql.md",
            )),
            _ => Ok(()),
        }
    }

    /// How many places for values the text of this number has.
    fn places(&self, text: usize) -> usize {
        let mut statements = self.operations.iter().flatten();
        let found = statements.find(|it| it.text == text);
        found.map_or(0, |it| it.values.places())
    }

    /// The values of a statement's parameters in a request.
    fn values(&self, statement: &Statement, request: u64) -> Vec<Parameter> {
        let turn = Turn::new(self.seed, self.portion, request, "");
        statement.values.parameters(&turn, self.data.as_deref())
    }
}

/// The number of the operation that a copy asks for.
fn number_of(outgoing: &Outgoing<'_>) -> usize {
    match outgoing.operation {
        Operation::Named { number, .. } => number,
        Operation::Call { .. } | Operation::Read { .. } | Operation::Write { .. } => 0,
    }
}
