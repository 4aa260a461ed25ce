//! The operator-controller binary.

use std::process::ExitCode;

use olm_runtime::Component;
use olm_runtime::gates::FeatureGates;
use olm_serving::command_line::{from_command_line, refuse};
use operator_controller::{Flags, GATES, run};

fn main() -> ExitCode {
    let flags: Flags = match from_command_line(&GATES) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    if let Some(command) = flags.command {
        return command.run::<Flags>(Component::OperatorController);
    }
    // Logging starts first, so that the checks of flags can log.
    olm_serving::logs::start(Component::OperatorController, &flags.service);
    let gates = FeatureGates::parse(&GATES, &flags.service.feature_gates);
    match gates.and_then(|gates| flags.check().map(|()| gates)) {
        Ok(gates) => {
            let service = flags.service.clone();
            olm_serving::run(Component::OperatorController, service, gates, |service| run(service, flags))
        }
        Err(error) => refuse::<Flags>(&error),
    }
}
