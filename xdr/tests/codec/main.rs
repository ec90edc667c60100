//! The wire format by the public interface: one program, because linking takes longer than running.

mod fields;
mod golden;
mod headers;
mod onc_oracle;
mod oracle;
mod roundtrip;
mod rpcgen_oracle;
mod vectors;
mod wireshark;
