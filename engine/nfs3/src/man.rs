//! The man page.

use std::io;

use clap::Command;
use clap_mangen::Man;

/// The man page: what clap knows of the options, and sections on files and outcomes.
///
/// # Errors
/// None are known: it is written to memory.
pub fn page(command: Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command).section("8").date(VERSION).source("rpcrdma").manual("rpcrdma");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    page.extend(SECTIONS.bytes());
    man.render_version_section(&mut page)?;
    Ok(page)
}

// Without a date, the next field would take its place.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const SECTIONS: &str = r#".SH FILES
.TP
.I /etc/rpcrdma/nfs3.toml
The configuration of the service.
Each key of its table \fBnfs3\fR is an option of this page without the dashes; a switch is true or false.
The other tables configure the engine, for example who may connect.
A key that is missing has the server's own value.
.TP
.I DIR.nfs3\-key
The key that signs file handles, if \fB\-\-key\fR states no other file.
The service has it in \fI/var/lib/rpcrdma\-nfs3/key\fR.
.SH SIGNALS
SIGTERM and SIGINT end the server: it answers the calls in progress first, for five seconds at most.
.SH EXIT STATUS
.TP
.B 0
The server was stopped by a signal.
.TP
.B 1
It could not start, or it lost its device. Standard error says why.
.TP
.B 2
The command line is wrong.
.SH EXAMPLES
Serve a directory at the address of an RDMA device, and mount it on another host:
.PP
.nf
rpcrdma\-nfs3 \-\-export /srv/data \-\-listen 10.0.0.1:20049
.fi
.PP
.nf
mount \-t nfs \-o vers=3,proto=rdma,port=20049,nolock,mountproto=tcp,mountport=20048 \e
      10.0.0.1:/srv/data /mnt
.fi
.PP
As a service, with \fBexport\fR and \fBlisten\fR in its configuration:
.PP
.nf
systemctl enable \-\-now rpcrdma\-nfs3
.fi
.SH SEE ALSO
.BR nfs (5),
.BR mount.nfs (8),
.BR rdma (8),
.BR rpcrdma\-top (1)
"#;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    #[test]
    fn the_man_page_has_every_option() {
        let page = page(Args::command()).expect("in memory");
        let page = String::from_utf8(page).expect("ASCII");
        for option in Args::command().get_arguments().filter_map(|option| option.get_long()) {
            let name = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&name), "no {name}: {page}");
        }
        assert!(page.contains(".TH rpcrdma-nfs3 8"), "{page}");
    }
}
