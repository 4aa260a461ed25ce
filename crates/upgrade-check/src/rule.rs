//! Rules of upgrades. IDs are stable.

use olm_finding::Declared;

olm_finding::rules! {
    /// All rules.
    pub(crate) RULES: ();

    SETTINGS "UPGRADE-1" Error (()) "the new bundle can be installed with the settings of the old one"
        "operator-controller refuses the upgrade of extensions with these settings. Keep install modes, and what they accept."
    STORED_OBJECTS "UPGRADE-2" Error (()) "custom resources that exist stay valid and whole"
        "Make the change in a new version of the API, and convert between both. An administrator can let it through with annotation crd-check."
    STORED_VERSIONS "UPGRADE-3" Error (()) "stored versions stay in spec.versions"
        "The API server refuses the CRD. Keep the version with served: false for some releases, and migrate the custom resources."
    IMMUTABLE "UPGRADE-4" Error (()) "fields that the API server never changes keep their values"
        "Give the object another name, or leave the field as it was. An administrator can let some objects be replaced with annotation replace-immutable."
    READABLE "UPGRADE-14" Error (()) "both bundles can be read"
        "The upgrade is not checked: correct the reference of the image, or give all folders with --bundles."
    CLIENTS "UPGRADE-5" Warning (()) "clients of an API get what they expect"
        "Keep the default, and set the value in the operator. operator-controller holds the upgrade unless annotation crd-check lets it through."
    UNSERVED "UPGRADE-6" Warning (()) "served versions stay served"
        "Clients that use the version fail. Announce it with deprecated: true, and serve both versions for some releases."
    DATA "UPGRADE-7" Warning (()) "objects with data stay"
        "The object is deleted with the old revision. Keep it in the bundle, or tell administrators to save its content."
    DANGEROUS "UPGRADE-8" Warning (()) "no subject gains permissions that lead to others: secrets, wildcards, roles"
        "Administrators who approve upgrades see them first. Ask for single resources and verbs."
    PLATFORM "UPGRADE-9" Warning (()) "the new bundle runs on every platform of the old one"
        "On other clusters the old version stays installed, or the upgrade of the cluster is blocked. Say so in the release notes."
    HARMLESS "UPGRADE-10" Note (()) "operator-controller accepts each change of a CRD"
        "Nothing breaks, but operator-controller holds the upgrade unless annotation crd-check lets it through."
    CONVERSION "UPGRADE-11" Note (()) "custom resources can be read before the pods of the new version run"
        "operator-controller sets the storage version last, when the webhook can answer. Until then the webhook of the old version must work."
    DEFAULTS "UPGRADE-12" Note (()) "no default of the API server contradicts the new content"
        "operator-controller removes the defaulted field. `kubectl apply` of the same object would be refused."
    INSTALLED "UPGRADE-15" Note (()) "OLM v1 can install the old bundle"
        "No extension upgrades from this bundle."
    PERMISSIONS "UPGRADE-13" Note (()) "no subject gains permissions"
        "Upgrades that wait for an approval list them."
}

/// Rules about schemas of CRDs and about permissions.
pub(crate) static LISTED: [&Declared<()>; 7] =
    [&STORED_OBJECTS, &STORED_VERSIONS, &CLIENTS, &UNSERVED, &HARMLESS, &DANGEROUS, &PERMISSIONS];
