//! Handlers and markup of the install page.

use axum::Form;
use axum::extract::{Path, Query};
use axum::response::Response;
use kube::core::ObjectMeta;
use maud::{Markup, html};
use olm_api::ClusterExtension;
use olm_api::cluster_extension::CatalogFilter;
use olm_cli_catalog::package::CatalogPackage;
use olm_cli_catalog::suggested_namespace::SuggestedNamespace;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{self, counted, printable};
use olm_cli_lifecycle::config::Configurable;
use olm_cli_lifecycle::install::{made_for, of_package};
use olm_cli_lifecycle::rendering::RenderSettings;

use super::follow::{Choice, Chosen};
use super::form::{
    BUNDLE, Errors, Field, Kind, PREVIEWED, Values, config_fields, extension, kept, orphans, place, value,
};
use super::permissions;
use super::preview::{Preview, Target};
use crate::app::Console;
use crate::catalog::package_path;
use crate::extensions;
use crate::markup::{error_list, manifest, problem, text_field, yaml_field};
use crate::page::{Page, PageError, Section, visible, without_flags};
use crate::visit::{Answer, Visit};
use crate::visitor::Visitor;

/// Most items of a list: changed objects, subjects, permissions of a subject.
pub(crate) const LISTED: usize = 200;

/// What all parts of the page show.
struct Sheet<'a> {
    catalog: &'a str,
    package: &'a CatalogPackage,
    values: &'a Values,
    fields: Vec<Field>,
    /// Fields for values that the bundle has no field for.
    orphans: Vec<Field>,
    choice: Choice,
    /// Namespace that the bundle suggests, with its labels. It has no name if the bundle suggests none.
    suggested: ObjectMeta,
    /// Bundle that the form configures.
    chosen: Option<Chosen>,
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
    visit: Visit,
    Path((catalog, package)): Path<(String, String)>,
    Query(values): Query<Values>,
) -> Result<Page, PageError> {
    let page = visit.page(Section::Catalog, format!("Install {package}"), async move |console, visitor| {
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
    page.await
}

/// Creates the extension.
///
/// # Errors
/// The catalog or package does not exist.
pub(super) async fn apply(
    visit: Visit,
    Path((catalog, package)): Path<(String, String)>,
    Form(values): Form<Values>,
) -> Result<Response, PageError> {
    let answer =
        visit.answer(Section::Catalog, format!("Install {package}"), async move |console, visitor| {
            let package = console.library.content(&catalog, console, visitor).await?.package(&package)?;
            let mut sheet = Sheet::read(console, visitor, &catalog, &package, &values).await?;
            if !sheet.errors.is_empty() {
                return Ok(Answer::refused(sheet.markup(visitor)));
            }
            if sheet.value(PREVIEWED) != sheet.fingerprint() {
                sheet.place("The form has changed since the preview. Preview it again.");
                return Ok(Answer::conflict(sheet.markup(visitor)));
            }
            let Some(target) = sheet.target(console, visitor) else {
                return Err(CliError::usage("the console uses no cluster"));
            };
            Ok(match target.apply(&sheet.extension, sheet.value(BUNDLE)).await {
                Ok(name) => Answer::Redirect(extensions::path(&name)),
                Err(error) => {
                    sheet.place(&error.to_string());
                    Answer::refused(sheet.markup(visitor))
                }
            })
        });
    answer.await
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
        let choice = Choice::new(package, values);
        let chosen = choice.chosen(package);
        let mut notes = Vec::new();
        let mut fields = Vec::new();
        match &chosen {
            Err(why) => notes.push(format!("Nothing can be installed with this choice: {why}")),
            Ok(Chosen { bundle, image, .. }) => match configurable(console, visitor, image).await {
                Ok(bundle) => fields = config_fields(&bundle),
                Err(error) => notes.push(format!(
                    "The bundle {bundle} cannot be read, so the form lacks its settings: {error}"
                )),
            },
        }
        let of_cluster = visitor.cluster().is_some() && console.library.is_of_cluster(catalog);
        let bundle = chosen.as_ref().ok().and_then(|chosen| package.bundle(&chosen.bundle));
        let suggested =
            SuggestedNamespace::of(&package.name, bundle).map(|found| found.metadata).unwrap_or_default();
        let named = suggested.name.as_deref().unwrap_or_default();
        let (extension, errors) =
            extension(of_cluster.then_some(catalog), &package.name, named, &choice, values, &fields);
        let yaml = output::yaml(&serde_json::to_value(&extension)?)?;
        let can_write = of_cluster && !console.read_only;
        Ok(Self {
            catalog,
            package,
            values,
            orphans: orphans(values, &fields),
            fields,
            choice,
            suggested,
            chosen: chosen.ok(),
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
            namespace: self.created_namespace(),
        })
    }

    /// Makes the preview, if the console has a cluster.
    async fn check(&mut self, console: &Console, visitor: &Visitor) {
        let Some(target) = self.target(console, visitor) else {
            self.notes.push(
                "Only the manifest is checked: the console uses no cluster that serves this catalog."
                    .to_owned(),
            );
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
        let extras = if creates_namespace { self.extras() } else { String::new() };
        olm_pack::digest_of(format!("{creates_namespace}\n{}{extras}", self.yaml).as_bytes())
    }

    /// Namespace of the extension, with the labels and annotations that the bundle suggests for it.
    fn namespace(&self) -> ObjectMeta {
        let name = self.extension.spec.as_ref().map(|spec| spec.namespace.clone());
        match name == self.suggested.name {
            true => self.suggested.clone(),
            false => ObjectMeta { name, ..ObjectMeta::default() },
        }
    }

    fn created_namespace(&self) -> ObjectMeta {
        let namespace = self.namespace();
        match namespace.name == self.suggested.name {
            true => made_for(namespace, &self.package.name),
            false => namespace,
        }
    }

    /// Labels and annotations of a created namespace in words. Empty without any.
    fn extras(&self) -> String {
        let ObjectMeta { labels, annotations, .. } = self.namespace();
        let all = [("label", labels), ("annotation", annotations)];
        let all = all.into_iter().flat_map(|(what, values)| {
            values.into_iter().flatten().map(move |(key, value)| format!(", with {what} {key}={value}"))
        });
        all.collect()
    }

    fn markup(&self, visitor: &Visitor) -> Markup {
        let head = html! {
            p.trail { a href="/" { "Packages" } " / " a href=(package_path(self.catalog, &self.package.name)) { (self.package.name) } }
            h1 { "Install " (self.package.name) }
            @if let Some(chosen) = &self.chosen { (chosen.markup(self.package)) }
            @for note in &self.notes { p.notice { (note) } }
            @if !self.errors.is_empty() { p.notice.bad role="alert" tabindex="-1" { "The installation would be refused. Correct the marked fields." } }
            @for error in self.errors_of("") { (problem(error)) }
        };
        html! {
            (visible(&head))
            (self.form())
            @if self.values.contains_key("preview") && self.errors.is_empty() {
                h2 { "Upgrades" }
                p #upgrades { (self.choice.sentence()) }
                (manifest(&self.yaml))
                @if let Some(preview) = &self.preview { (visible(&preview_markup(preview))) }
                @if let (true, Some(preview)) = (self.can_write, &self.preview) { (self.write_form(visitor, preview)) }
            }
        }
    }

    fn form(&self) -> Markup {
        html! {
            form.install method="get" action=(address(self.catalog, &self.package.name)) {
                (self.text("name", "Name", "Name of the ClusterExtension", &self.package.name))
                (self.text("namespace", "Namespace", &format!("The operator runs in this namespace{}", self.extras()), self.suggested.name.as_deref().unwrap_or_default()))
                label.check {
                    input type="checkbox" name="create_namespace" value="yes"
                        checked[self.values.contains_key("create_namespace") || !self.values.contains_key("namespace")];
                    "Create the namespace if it does not exist"
                }
                (self.choice.fields(self.package, |name| error_list(name, self.errors_of(name))))
                (error_list("channel", self.errors_of("channel")))
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
        text_field(name, label, help, self.value(name), placeholder, Some(self.errors_of(name)))
    }

    fn config_field(&self, field: &Field) -> Markup {
        let (name, notation) = (field.path.as_str(), printable(&field.notation));
        if field.kind != Kind::Yaml {
            return self.text(name, name, &format!("{} ({})", field.help, field.notation), "");
        }
        let help = html! { (printable(&field.help)) " YAML of type " code { (notation) } };
        yaml_field(name, name, &help, self.value(name), 3, Some(self.errors_of(name)))
    }

    fn errors_of(&self, name: &str) -> &[String] {
        self.errors.get(name).map_or(&[], Vec::as_slice)
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
        pre tabindex="0" role="region" aria-label="Choice of the resolver" { (without_flags(&preview.choice)) }
        @for warning in &preview.warnings { p.notice { (without_flags(warning)) } }
        @if !preview.has_namespace { p.soft { "The namespace does not exist yet, so the objects are not compared with the cluster." } }
        @if let Some(diff) = &preview.diff {
            @for warning in &diff.warnings { p.notice { (warning) } }
            (permissions::markup(&diff.permissions))
            details {
                summary { (counted(diff.objects.len(), "object")) }
                ul #objects {
                    @for change in diff.objects.iter().take(LISTED) { li { (change.object) } }
                    (permissions::more(diff.objects.len(), "objects"))
                }
            }
        }
    }
}
