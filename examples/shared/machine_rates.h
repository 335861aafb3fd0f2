#pragma once

namespace tapeformer {

/// The peak of this machine's threads, in FLOP/s: multiply-adds on registers alone, the best of
/// several short rounds. T is float or double.
template <class T>
double peak_rate();

/// The bandwidth of memory, or of the caches where the arrays fit, for all threads, or for one if that is
/// faster: the best of many passes over arrays of `bytes` in total. In place: a = a + s b. Else a = b + s c,
/// which moves more than is counted: a stored line is fetched first.
/// Source:  McCalpin 1995, "Memory bandwidth and machine balance in current high performance computers"
double bandwidth(double bytes, bool in_place);

}  // namespace tapeformer
