//! The catalogd binary.

use std::process::ExitCode;

use catalogd::flags::{CatalogdFlags, GATES};
use catalogd::serve::serve;
use olm_runtime::Component;
use olm_runtime::gates::FeatureGates;
use olm_serving::command_line::{from_command_line, refuse};
use olm_serving::run;

fn main() -> ExitCode {
    let flags: CatalogdFlags = match from_command_line(&GATES) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    if let Some(command) = flags.command {
        return command.run::<CatalogdFlags>(Component::Catalogd);
    }
    let gates = FeatureGates::parse(&GATES, &flags.service.feature_gates);
    match gates.and_then(|gates| flags.check().map(|()| gates)) {
        Ok(gates) => run(Component::Catalogd, flags.service.clone(), gates, |service| serve(service, flags)),
        Err(error) => refuse::<CatalogdFlags>(&error),
    }
}
