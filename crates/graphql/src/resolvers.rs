//! Resolution of fields from the JSON of objects. A failed field is null and has an error. A query over its limits
//! fails as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use async_graphql::dynamic::{FieldValue, ResolverContext};
use async_graphql::{ServerError, Value};
use serde_json::value::RawValue;

use crate::members::{for_each_element, members};
use crate::meter::{ELEMENT, Meter};
use crate::schema::LeafShape;

/// Largest object that is read, in bytes of JSON.
pub const MAX_OBJECT: u64 = 16 << 20;
/// Maximum and default number of objects that a query returns.
pub(crate) const PAGE: usize = 100;

/// Objects of a catalog in stored order. The [crate] has an example.
pub trait Objects: Send + Sync + 'static {
    /// Ranges of at most `limit` objects of `schema`, after the first `offset`.
    fn ranges(&self, schema: &str, offset: usize, limit: usize) -> Vec<Range<u64>>;

    /// JSON text at a range returned by [`Objects::ranges`], at most [`MAX_OBJECT`] long.
    ///
    /// # Errors
    /// A disk error. The response only says that the object could not be read.
    fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>>;
}

/// [`Objects`] as data of a request.
pub(crate) struct Source(pub(crate) Box<dyn Objects>);

/// Object or list element: JSON of the members that the query selects, by field name.
type Item = BTreeMap<String, Box<RawValue>>;

/// Resolves the root field of `schema`.
pub(crate) fn page<'a>(ctx: &ResolverContext<'a>, schema: &str) -> Option<FieldValue<'a>> {
    let (source, meter) = (ctx.data_opt::<Source>()?, ctx.data_opt::<Arc<Meter>>()?);
    let argument = |name| ctx.args.get(name).and_then(|value| value.i64().ok());
    let limit = argument("limit").and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.filter(|limit| (1..=PAGE).contains(limit)).unwrap_or(PAGE);
    let offset = argument("offset").and_then(|offset| usize::try_from(offset).ok()).unwrap_or_default();
    let selected = selected_fields(ctx);
    let mut items = Vec::new();
    for (number, range) in source.0.ranges(schema, offset, limit).into_iter().enumerate() {
        meter.spend(ELEMENT).ok()?;
        let item = read(source, range, &selected, meter);
        let item = item.unwrap_or_else(|problem| {
            add_error(
                ctx,
                format!("object {} of schema {schema:?} {problem}", offset.saturating_add(number)),
            );
            Item::new()
        });
        items.push(FieldValue::owned_any(item));
    }
    Some(FieldValue::list(items))
}

fn read(
    source: &Source,
    range: Range<u64>,
    selected: &BTreeSet<&str>,
    meter: &Meter,
) -> Result<Item, &'static str> {
    if range.end.saturating_sub(range.start) > MAX_OBJECT {
        return Err("is larger than 16 MiB");
    }
    let json = source.0.read(range).map_err(|_| "cannot be read")?;
    let json = str::from_utf8(&json).map_err(|_| "is not UTF-8")?;
    select(json, selected, meter).ok_or("is not a JSON object")
}

/// Selected members of an object. `None` for any other value.
fn select(json: &str, selected: &BTreeSet<&str>, meter: &Meter) -> Option<Item> {
    let members = members(json, usize::MAX, &|field| selected.contains(field)).ok()?;
    let size = members.values().map(|value| value.get().len()).sum();
    // If the budget is exhausted, the whole query has failed.
    meter.spend(size).ok()?;
    Some(members.into_iter().map(|(field, value)| (field, value.to_owned())).collect())
}

/// Resolves a list of objects within an object of the type `parent`.
pub(crate) fn objects<'a>(ctx: &ResolverContext<'a>, parent: &str) -> Option<FieldValue<'a>> {
    let selected = selected_fields(ctx);
    list(ctx, parent, &|element, meter| {
        FieldValue::owned_any(select(element, &selected, meter).unwrap_or_default())
    })
}

/// Resolves a scalar or a list of scalars within an object of the type `parent`.
pub(crate) fn leaf<'a>(ctx: &ResolverContext<'a>, parent: &str, shape: LeafShape) -> Option<FieldValue<'a>> {
    if shape.is_list {
        return list(ctx, parent, &|element, _| FieldValue::value(shape.scalar.value(element)));
    }
    let json = member(ctx)?;
    ctx.data_opt::<Arc<Meter>>()?.spend(json.len()).ok()?;
    Some(FieldValue::value(shape.scalar.value(json)))
}

fn list<'a>(
    ctx: &ResolverContext<'a>,
    parent: &str,
    value: &dyn Fn(&str, &Meter) -> FieldValue<'a>,
) -> Option<FieldValue<'a>> {
    let meter = ctx.data_opt::<Arc<Meter>>()?;
    let json = member(ctx).filter(|json| *json != "null")?;
    let mut elements = Vec::new();
    let walked = for_each_element(json, &mut |element| {
        meter.spend(ELEMENT + element.len())?;
        elements.push(value(element, meter));
        Ok(())
    });
    if walked.is_err() {
        let field = field_name(ctx);
        add_error(
            ctx,
            format!("User Error: expected iterable, but did not find one for field {parent}.{field}."),
        );
        return None;
    }
    Some(FieldValue::list(elements))
}

fn member<'a>(ctx: &ResolverContext<'a>) -> Option<&'a str> {
    let item = ctx.parent_value.try_downcast_ref::<Item>().ok()?;
    item.get(field_name(ctx)).map(|value| value.get())
}

/// Name of the resolved field, not its alias.
fn field_name<'a>(ctx: &ResolverContext<'a>) -> &'a str {
    &ctx.ctx.item.node.name.node
}

/// Fields that the query selects, including fragments.
fn selected_fields<'a>(ctx: &ResolverContext<'a>) -> BTreeSet<&'a str> {
    ctx.ctx.field().selection_set().map(|field| field.name()).collect()
}

/// Adds an error, which is charged like an element.
fn add_error(ctx: &ResolverContext<'_>, message: String) {
    if ctx.data_opt::<Arc<Meter>>().is_none_or(|meter| meter.spend(ELEMENT + message.len()).is_err()) {
        return;
    }
    ctx.add_error(ctx.set_error_path(ServerError::new(message, Some(ctx.item.pos))));
}

#[derive(Clone)]
pub(crate) struct SchemaSummary {
    pub(crate) name: Arc<str>,
    pub(crate) objects: usize,
    pub(crate) fields: usize,
}

/// Resolves a field of a [`SchemaSummary`].
pub(crate) fn summary_value<'a>(
    ctx: &ResolverContext<'a>,
    value: fn(&SchemaSummary) -> Value,
) -> Option<FieldValue<'a>> {
    let summary = ctx.parent_value.try_downcast_ref::<SchemaSummary>().ok()?;
    ctx.data_opt::<Arc<Meter>>()?.spend(summary.name.len()).ok()?;
    Some(FieldValue::value(value(summary)))
}
