//! Reading rows of which one may be damaged, and times as SQLite stores them.

use jiff::Timestamp;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, Error, OptionalExtension, Params, Row};

use super::StoreError;

/// Short forms of what most methods of a store do. Statements are prepared once.
pub trait Query {
    /// Runs a statement, and returns whether it changed a row.
    fn run(&self, sql: &str, params: impl Params) -> Result<bool, StoreError>;

    /// The row that a query finds, if it finds one.
    fn find<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError>;

    /// All rows that a query finds and that can be read. A damaged row is logged and skipped.
    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError>;
}

impl Query for Connection {
    fn run(&self, sql: &str, params: impl Params) -> Result<bool, StoreError> {
        Ok(self.prepare_cached(sql)?.execute(params)? > 0)
    }

    fn find<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.prepare_cached(sql)?.query_row(params, read).optional()?)
    }

    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut rows = Vec::new();
        for row in self.prepare_cached(sql)?.query_map(params, read)? {
            match row {
                Ok(row) => rows.push(row),
                Err(error) if is_damage(&error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "skipping a row of the database that cannot be read");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rows)
    }
}

/// Whether the error is about the content of one row, not about the database.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
            | Error::Utf8Error(..)
    )
}

/// A column as text, whatever its type: for logs and for fields that are only displayed.
pub(super) fn lossy(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Null => String::new(),
    })
}

/// A time that is always set.
pub fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    to_time(row.get(column)?)
}

/// A time that may be unset.
pub fn time_or_never(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(column)?.map(to_time).transpose()
}

fn to_time(millisecond: i64) -> rusqlite::Result<Timestamp> {
    Timestamp::from_millisecond(millisecond)
        .map_err(|error| Error::FromSqlConversionFailure(0, Type::Integer, error.into()))
}

/// A text column that is parsed, for example a name or a scope.
pub fn parsed<T>(row: &Row<'_>, column: &str, parse: impl FnOnce(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| {
        let what = format!("{column} is {text:?}");
        Error::FromSqlConversionFailure(0, Type::Text, what.into())
    })
}
