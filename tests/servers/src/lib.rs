//! Our servers as real processes on a real control plane, for tests and measurements.
