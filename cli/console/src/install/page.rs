//! Handlers and markup of the install page.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use maud::{Markup, html};
use olm_api::ClusterExtension;
use olm_api::cluster_extension::CatalogFilter;
use olm_cli_catalog::package::CatalogPackage;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{self, printable};
use olm_cli_lifecycle::config::Configurable;
use olm_cli_lifecycle::install::of_package;
use olm_cli_lifecycle::rendering::RenderSettings;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::bundle::chosen;
use super::form::{
    BUNDLE, Errors, Field, Kind, PREVIEWED, Values, config_fields, extension, kept, orphans, place, value,
};
use super::preview::{Preview, Target};
use super::{done, permissions};
use crate::app::{App, Console};
use crate::catalog::{channel_select, package_path};
use crate::page::{Page, PageError, Section, visible};
use crate::visitor::Visitor;

/// Most items of a list: changed objects, subjects, permissions of a subject.
pub(crate) const LISTED: usize = 200;

/// Limit of concurrent calls of [`detached`]. A disconnect does not end one, and each may hold a bundle.
pub(crate) const DETACHED: usize = 16;
/// Longest wait for one of [`DETACHED`].
const TURN: Duration = Duration::from_secs(10);

/// What all parts of the page show.
struct Sheet<'a> {
    catalog: &'a str,
    package: &'a CatalogPackage,
    values: &'a Values,
    fields: Vec<Field>,
    /// Fields for values that the bundle has no field for.
    orphans: Vec<Field>,
    /// Name of the bundle that the form configures.
    bundle: Option<String>,
    /// Notes about the form.
    notes: Vec<String>,
    errors: Errors,
    preview: Option<Preview>,
    yaml: String,
    extension: ClusterExtension,
    can_write: bool,
}

/// Form, and with `preview` in the query also its result.
///
/// # Errors
/// The catalog or package does not exist.
pub(super) async fn page(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
    Path((catalog, package)): Path<(String, String)>,
    Query(values): Query<Values>,
) -> Result<Page, PageError> {
    let title = format!("Install {package}");
    let body = detached(console, visitor, async move |console, visitor| {
        let package = console.library.content(&catalog, console, visitor).await?.package(&package)?;
        let mut sheet = Sheet::read(console, visitor, &catalog, &package, &values).await?;
        if !values.contains_key("preview") {
            // An empty form is not an error.
            sheet.errors.clear();
        } else if sheet.errors.is_empty() {
            sheet.check(console, visitor).await;
        }
        Ok(sheet.markup(visitor))
    });
    Ok(Page::new(Section::Catalog, title, body.await?))
}

/// Creates the extension.
///
/// # Errors
/// The catalog or package does not exist.
pub(super) async fn apply(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
    Path((catalog, package)): Path<(String, String)>,
    Form(values): Form<Values>,
) -> Result<Response, PageError> {
    let title = format!("Install {package}");
    let result = detached(console, visitor, async move |console, visitor| {
        let package = console.library.content(&catalog, console, visitor).await?.package(&package)?;
        let mut sheet = Sheet::read(console, visitor, &catalog, &package, &values).await?;
        if !sheet.errors.is_empty() {
            return Ok(Err((StatusCode::UNPROCESSABLE_ENTITY, sheet.markup(visitor))));
        }
        if sheet.value(PREVIEWED) != sheet.fingerprint() {
            sheet.place("The form has changed since the preview. Preview it again.");
            return Ok(Err((StatusCode::CONFLICT, sheet.markup(visitor))));
        }
        let Some(target) = sheet.target(console, visitor) else {
            return Err(CliError::usage("the console uses no cluster"));
        };
        match target.apply(&sheet.extension, sheet.value(BUNDLE)).await {
            Ok(name) => Ok(Ok(done::address(&catalog, &package.name, &name))),
            Err(error) => {
                sheet.place(&error.to_string());
                Ok(Err((StatusCode::UNPROCESSABLE_ENTITY, sheet.markup(visitor))))
            }
        }
    });
    Ok(match result.await? {
        Ok(address) => Redirect::to(&address).into_response(),
        Err((status, body)) => Page::new(Section::Catalog, title, body).with_status(status).into_response(),
    })
}

/// Runs `work` on a thread of its own: the futures of the command line's functions are not `Send`.
///
/// # Errors
/// Errors of `work`, or 503 if too many others run.
pub(crate) async fn detached<T: Send + 'static>(
    console: App,
    visitor: Visitor,
    work: impl AsyncFnOnce(&Console, &Visitor) -> Result<T, CliError> + Send + 'static,
) -> Result<T, PageError> {
    let Ok(Ok(permit)) = timeout(TURN, Arc::clone(&console.detached).acquire_owned()).await else {
        let busy = "the console computes too many pages at the same time: try again later";
        return Err(PageError::new(StatusCode::SERVICE_UNAVAILABLE, busy));
    };
    let run = move || {
        let _permit = permit;
        Handle::current().block_on(work(&console, &visitor))
    };
    let done = tokio::task::spawn_blocking(run).await;
    let done = done.map_err(|_| CliError::operational("the work for this page ended early"))?;
    done.map_err(PageError::from)
}

impl<'a> Sheet<'a> {
    /// Reads the form: fields from the configuration schema of the bundle, with the given values.
    async fn read(
        console: &Console,
        visitor: &Visitor,
        catalog: &'a str,
        package: &'a CatalogPackage,
        values: &'a Values,
    ) -> Result<Self, CliError> {
        let given = |name| Some(value(values, name)).filter(|text| !text.is_empty());
        let chosen = chosen(package, given("channel"), given("version"));
        let mut notes = Vec::new();
        let mut fields = Vec::new();
        match &chosen {
            None => notes.push("No bundle of the package is in this channel and version range.".to_owned()),
            Some((name, image)) => match configurable(console, visitor, image).await {
                Ok(bundle) => fields = config_fields(&bundle),
                Err(error) => notes.push(format!(
                    "The bundle {name} cannot be read, so its configuration is not in the form: {error}"
                )),
            },
        }
        let of_cluster = visitor.cluster().is_some() && console.library.is_of_cluster(catalog);
        let (extension, errors) = extension(of_cluster.then_some(catalog), &package.name, values, &fields);
        let yaml = output::yaml(&serde_json::to_value(&extension)?)?;
        let can_write = of_cluster && !console.read_only;
        let bundle = chosen.map(|(name, _)| name);
        Ok(Self {
            catalog,
            package,
            values,
            orphans: orphans(values, &fields),
            fields,
            bundle,
            notes,
            errors,
            preview: None,
            yaml,
            extension,
            can_write,
        })
    }

    fn target<'b>(&self, console: &'b Console, visitor: &'b Visitor) -> Option<Target<'b>> {
        let cluster = visitor.cluster().filter(|_| console.library.is_of_cluster(self.catalog))?;
        Some(Target {
            cluster,
            access: visitor.access(),
            bundles: &console.bundles,
            session: &console.session,
            source: format!("cluster/{}", self.catalog),
            create_namespace: self.values.contains_key("create_namespace"),
        })
    }

    /// Makes the preview, if the console has a cluster.
    async fn check(&mut self, console: &Console, visitor: &Visitor) {
        let Some(target) = self.target(console, visitor) else {
            self.notes
                .push("Without a cluster that serves this catalog, only the manifest is checked.".to_owned());
            return;
        };
        match target.preview(&self.extension).await {
            Ok(preview) => self.preview = Some(preview),
            Err(error) => self.place(&error.to_string()),
        }
    }

    fn place(&mut self, error: &str) {
        let field = place(error, &self.fields);
        self.errors.entry(field).or_default().push(error.to_owned());
    }

    fn value(&self, name: &str) -> &str {
        value(self.values, name)
    }

    /// Digest of what a write creates.
    fn fingerprint(&self) -> String {
        let creates_namespace = self.values.contains_key("create_namespace");
        olm_pack::digest_of(format!("{creates_namespace}\n{}", self.yaml).as_bytes())
    }

    fn markup(&self, visitor: &Visitor) -> Markup {
        let general = self.errors.get("").into_iter().flatten();
        let head = html! {
            p.trail { a href=(package_path(self.catalog, &self.package.name)) { (self.package.name) } " in catalog " (self.catalog) }
            h1 { "Install " (self.package.name) }
            @if let Some(bundle) = &self.bundle { p.soft { "Bundle with default rules and this catalog only: " (bundle) } }
            @for note in &self.notes { p.notice { (note) } }
            @if !self.errors.is_empty() { p.notice.bad role="alert" tabindex="-1" { "The installation would be refused. See the marked fields." } }
            @for error in general { p.notice.bad role="alert" { (error) } }
        };
        html! {
            (visible(&head))
            (self.form())
            @if self.values.contains_key("preview") && self.errors.is_empty() {
                (self.manifest())
                @if let Some(preview) = &self.preview { (visible(&preview_markup(preview))) }
                @if let (true, Some(preview)) = (self.can_write, &self.preview) { (self.write_form(visitor, preview)) }
            }
        }
    }

    fn form(&self) -> Markup {
        html! {
            form.install method="get" action=(address(self.catalog, &self.package.name)) {
                (self.text("name", "Name", "Name of the ClusterExtension", &self.package.name))
                (self.text("namespace", "Namespace", "Namespace that the operator is installed into", ""))
                label.check {
                    input type="checkbox" name="create_namespace" value="yes" checked[self.values.contains_key("create_namespace")];
                    "Create the namespace if it does not exist"
                }
                div.field {
                    (channel_select(self.package, self.value("channel")))
                    (self.errors_of("channel"))
                }
                (self.text("version", "Version range", "Only these versions, such as 1.2.3, 1.2.x or >=1.2, <2. Upgrades stay within them", "any"))
                @let (plain, nested): (Vec<_>, Vec<_>) = self.fields.iter().partition(|field| !field.path.contains('.'));
                @for field in plain { (self.config_field(field)) }
                @for field in &self.orphans { (self.config_field(field)) }
                @if !nested.is_empty() {
                    @let is_used = nested.iter().any(|field| !self.value(&field.path).is_empty());
                    details open[is_used] {
                        summary { "Deployments" }
                        @for field in nested { (self.config_field(field)) }
                    }
                }
                button type="submit" name="preview" value="yes" { "Preview" }
            }
        }
    }

    fn text(&self, name: &str, label: &str, help: &str, placeholder: &str) -> Markup {
        html! {
            div.field {
                label for=(name) { (label) }
                input id=(name) type="text" name=(name) value=(self.value(name)) placeholder=(placeholder) spellcheck="false"
                    autocomplete="off" aria-describedby=(format!("{name}-help {name}-errors"))
                    aria-invalid=[self.errors.contains_key(name).then_some("true")];
                p.soft id=(format!("{name}-help")) { (printable(help)) }
                (self.errors_of(name))
            }
        }
    }

    fn config_field(&self, field: &Field) -> Markup {
        let name = field.path.as_str();
        if field.kind != Kind::Yaml {
            return self.text(name, name, &format!("{} ({})", field.help, field.notation), "");
        }
        html! {
            div.field {
                label for=(name) { (name) }
                textarea id=(name) name=(name) rows="3" spellcheck="false" aria-describedby=(format!("{name}-help {name}-errors"))
                    aria-invalid=[self.errors.contains_key(name).then_some("true")] { (self.value(name)) }
                p.soft id=(format!("{name}-help")) { (printable(&field.help)) " YAML of type " code { (printable(&field.notation)) } }
                (self.errors_of(name))
            }
        }
    }

    fn errors_of(&self, name: &str) -> Markup {
        let errors = self.errors.get(name);
        html! {
            ul.errors id=(format!("{name}-errors")) hidden[errors.is_none()] {
                @for error in errors.into_iter().flatten() { li { (printable(error)) } }
            }
        }
    }

    fn manifest(&self) -> Markup {
        html! {
            h2 { "Manifest" }
            pre #manifest tabindex="0" { (self.yaml) }
            button.quiet type="button" data-copy="manifest" hidden { "Copy" }
        }
    }

    /// Form with the values that were checked, and what they led to.
    fn write_form(&self, visitor: &Visitor, preview: &Preview) -> Markup {
        html! {
            form method="post" action=(address(self.catalog, &self.package.name)) {
                (visitor.csrf_field())
                @for (name, value) in kept(self.values) { input type="hidden" name=(name) value=(value); }
                input type="hidden" name=(PREVIEWED) value=(self.fingerprint());
                input type="hidden" name=(BUNDLE) value=(preview.bundle);
                button type="submit" data-apply { "Install" }
            }
        }
    }
}

async fn configurable(console: &Console, visitor: &Visitor, image: &str) -> Result<Configurable, CliError> {
    let files = console.bundles.read(image, visitor.access(), &console.session).await?;
    let settings = match visitor.cluster() {
        None => None,
        Some(cluster) => {
            let controller = ControllerArgs::read(cluster, &console.session).await?;
            // Only the gates of the controller matter.
            let any = of_package("", "", CatalogFilter::default(), None);
            Some(RenderSettings::as_configured(&any, &controller.gates)?)
        }
    };
    Configurable::new(&files, settings.as_ref())
}

fn address(catalog: &str, package: &str) -> String {
    format!("{}/install", package_path(catalog, package))
}

fn preview_markup(preview: &Preview) -> Markup {
    html! {
        h2 { "Preview" }
        pre tabindex="0" { (preview.choice) }
        @for warning in &preview.warnings { p.notice { (warning) } }
        @if !preview.has_namespace { p.soft { "The namespace does not exist yet, so the objects are not compared with the cluster." } }
        @if let Some(diff) = &preview.diff {
            @for warning in &diff.warnings { p.notice { (warning) } }
            h3 { "Objects (" (diff.objects.len()) ")" }
            ul #objects {
                @for change in diff.objects.iter().take(LISTED) { li { (change.object) } }
                (permissions::more(diff.objects.len(), "objects"))
            }
            (permissions::markup(&diff.permissions))
        }
    }
}
