#pragma once

namespace tapeformer {

/// Ends the program with one line and kExitBadInput if `ulimit -v` leaves less address space than the
/// libraries take when they start: OpenBLAS asks again for ever. So it runs before they do, and may use only
/// what needs no initialisation.
void end_without_address_space(int argc, char** argv, char** environment);

}  // namespace tapeformer
