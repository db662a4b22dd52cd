//! The columns of a row group, taken from its rows.
//!
//! A row is read once, while the processor's cache has it: a group has more bytes than the cache, and
//! reading it again for each column took most of the time. The buffers are used for group after
//! group.

use std::io::Write;

use parquet::basic::{Repetition, Type as Physical};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::Type;

use crate::segment::Value;

/// Rows whose columns are taken together: few enough for the cache.
const BLOCK_ROWS: usize = 512;

/// Words that are written at once.
const WORDS_AT_ONCE: usize = 1_024;

/// Words among which a repeated one is looked for.
const WORDS_NEAR: usize = 8;

/// The values of one column that are there, and which rows have one.
#[derive(Debug)]
pub(crate) struct Column {
    /// 1 for each row with a value and 0 for each null, if the column may have nulls.
    levels: Option<Vec<i16>>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Longs(Vec<i64>),
    Ints(Vec<i32>),
    Doubles(Vec<f64>),
    Flags(Vec<bool>),
    Words(Words),
}

/// Words, of which neighbouring rows often have the same.
#[derive(Debug, Default)]
struct Words {
    words: Vec<ByteArray>,
    /// The index of a word, and the number of rows in a row that have it.
    runs: Vec<(usize, usize)>,
}

impl Words {
    fn push(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if let Some((index, count)) = self.runs.last_mut()
            && self.words[*index].data() == bytes
        {
            *count += 1;
            return;
        }
        let near = self.words.len().saturating_sub(WORDS_NEAR);
        let known = self.words[near..].iter().position(|it| it.data() == bytes);
        let index = known.map_or(self.words.len(), |place| near + place);
        if known.is_none() {
            self.words.push(ByteArray::from(bytes.to_vec()));
        }
        self.runs.push((index, 1));
    }

    /// Writes the words. Every row has one if `levels` is `None` or has no 0.
    fn write(
        &self,
        writer: &mut ColumnWriterImpl<'_, ByteArrayType>,
        levels: Option<&[i16]>,
    ) -> ParquetResult<()> {
        let mut chunk = Vec::with_capacity(WORDS_AT_ONCE);
        if levels.is_some_and(|it| it.contains(&0)) {
            for (index, count) in &self.runs {
                chunk.extend(std::iter::repeat_n(self.words[*index].clone(), *count));
            }
            writer.write_batch(&chunk, levels, None)?;
            return Ok(());
        }
        let mut write = |chunk: &[ByteArray]| {
            writer.write_batch(chunk, levels.map(|it| &it[..chunk.len()]), None)
        };
        for (index, count) in &self.runs {
            let mut left = *count;
            while left > 0 {
                // Clones take time, so a chunk of one word is written again and again.
                let fresh = chunk.is_empty();
                let some = left.min(WORDS_AT_ONCE - chunk.len());
                chunk.extend(std::iter::repeat_n(self.words[*index].clone(), some));
                left -= some;
                if chunk.len() < WORDS_AT_ONCE {
                    continue;
                }
                write(&chunk)?;
                while fresh && left >= WORDS_AT_ONCE {
                    write(&chunk)?;
                    left -= WORDS_AT_ONCE;
                }
                chunk.clear();
            }
        }
        write(&chunk)?;
        Ok(())
    }
}

impl Column {
    fn of(column: &Type) -> ParquetResult<Self> {
        let optional = column.get_basic_info().repetition() == Repetition::OPTIONAL;
        let values = match column.get_physical_type() {
            Physical::INT64 => Values::Longs(Vec::new()),
            Physical::INT32 => Values::Ints(Vec::new()),
            Physical::DOUBLE => Values::Doubles(Vec::new()),
            Physical::BOOLEAN => Values::Flags(Vec::new()),
            Physical::BYTE_ARRAY => Values::Words(Words::default()),
            _ => {
                let name = column.name();
                return Err(ParquetError::General(format!(
                    "column {name}: type unknown"
                )));
            }
        };
        Ok(Self {
            levels: optional.then(Vec::new),
            values,
        })
    }

    fn clear(&mut self) {
        self.levels.iter_mut().for_each(Vec::clear);
        match &mut self.values {
            Values::Longs(values) => values.clear(),
            Values::Ints(values) => values.clear(),
            Values::Doubles(values) => values.clear(),
            Values::Flags(values) => values.clear(),
            Values::Words(words) => {
                words.words.clear();
                words.runs.clear();
            }
        }
    }

    /// Adds the value of the next row. Returns whether the column may have it.
    fn push(&mut self, value: Value<'_>) -> bool {
        match (&mut self.values, value) {
            (_, Value::Null) => {
                let levels = self.levels.as_mut();
                return levels.map(|levels| levels.push(0)).is_some();
            }
            (Values::Longs(values), Value::Int(number)) => values.push(number),
            // Unsigned 32-bit columns are stored as their bit pattern, as Parquet prescribes.
            (Values::Ints(values), Value::Int(number)) => {
                values.push((number.cast_unsigned() & 0xffff_ffff) as u32 as i32);
            }
            (Values::Doubles(values), Value::Float(number)) => values.push(number),
            (Values::Flags(values), Value::Bool(flag)) => values.push(flag),
            (Values::Words(words), Value::Text(text)) => words.push(text),
            _ => return false,
        }
        if let Some(levels) = &mut self.levels {
            levels.push(1);
        }
        true
    }

    fn write<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> ParquetResult<()> {
        fn put<T: DataType>(
            writer: &mut ColumnWriterImpl<'_, T>,
            values: &[T::T],
            levels: Option<&[i16]>,
        ) -> ParquetResult<()> {
            writer.write_batch(values, levels, None).map(|_| ())
        }
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General("no place for a column".to_owned()));
        };
        let levels = self.levels.as_deref();
        match (writer.untyped(), &self.values) {
            (ColumnWriter::Int64ColumnWriter(it), Values::Longs(values)) => put(it, values, levels),
            (ColumnWriter::Int32ColumnWriter(it), Values::Ints(values)) => put(it, values, levels),
            (ColumnWriter::DoubleColumnWriter(it), Values::Doubles(values)) => {
                put(it, values, levels)
            }
            (ColumnWriter::BoolColumnWriter(it), Values::Flags(values)) => put(it, values, levels),
            (ColumnWriter::ByteArrayColumnWriter(it), Values::Words(words)) => {
                words.write(it, levels)
            }
            _ => Err(ParquetError::General("a column of another type".to_owned())),
        }?;
        writer.close()
    }
}

/// The columns of a table, for one row group at a time.
#[derive(Debug)]
pub(crate) struct Columns {
    types: Vec<std::sync::Arc<Type>>,
    columns: Vec<Column>,
}

impl Columns {
    /// Returns the empty columns of a table.
    ///
    /// # Errors
    ///
    /// When a column has a type that no [`Value`] has.
    pub(crate) fn of(schema: &Type) -> ParquetResult<Self> {
        let types = schema.get_fields().to_vec();
        let columns: ParquetResult<Vec<_>> = types.iter().map(|it| Column::of(it)).collect();
        let columns = columns?;
        Ok(Self { types, columns })
    }

    /// Writes these rows as a row group; `value(column, row)` returns each value.
    ///
    /// # Errors
    ///
    /// When a required value is null, a value is of another type than its column, or the file cannot
    /// be written.
    pub(crate) fn write<'a, W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        rows: std::ops::Range<usize>,
        value: impl Fn(usize, usize) -> Value<'a>,
    ) -> ParquetResult<()> {
        self.columns.iter_mut().for_each(Column::clear);
        let mut begin = rows.start;
        while begin < rows.end {
            let end = rows.end.min(begin + BLOCK_ROWS);
            for (index, column) in self.columns.iter_mut().enumerate() {
                for row in begin..end {
                    let it = value(index, row);
                    if !column.push(it) {
                        let name = self.types[index].name();
                        let text = format!("column {name}: row {row} is {it:?}");
                        return Err(ParquetError::General(text));
                    }
                }
            }
            begin = end;
        }
        self.columns.iter().try_for_each(|it| it.write(group))
    }
}
