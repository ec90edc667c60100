//! Round-trip reduction: message continuation and placement by Send (\[RTR\]).
//!
//! | file | subject | source |
//! |---|---|---|
//! | `fixed` | the headers of the data path as fixed structures, RDMA_MSG among them | \[RTR\] 9.2 - 9.4, \[V2\] 4.2 |
//! | `segmented` | the headers of a single item in several segments | \[RTR\] 9.2, 9.3 |
//! | `transmit` | the headers of a group's transmissions | \[RTR\] 9.2 - 9.4 |
//! | `placement` | locations of placed items, and directions for those of a reply | \[RTR\] 7.3, 7.4 |
//! | `structure` | the segments of a receive buffer | \[RTR\] 7.2, 8.3 |
//! | `report` | reports of errors in a transmission | \[RTR\] 9.5 |

pub mod fixed;
pub mod placement;
pub mod report;
pub mod segmented;
pub mod structure;
pub mod transmit;
