#pragma once

namespace tapeformer {

/// The peak rate of this machine with all threads, in FLOP/s: multiply-adds on registers alone, the best of
/// several short rounds. T is float or double.
template <class T>
double peak_rate();

/// The bandwidth in bytes per second of memory, or of a cache that the arrays fit into, with all threads, or
/// with one if that is faster: the best of many passes over arrays of `bytes` in total. A pass is a = a + s b
/// if `in_place`, else a = b + s c, which moves more than is counted: a stored line is fetched first.
/// Source:  McCalpin 1995, "Memory bandwidth and machine balance in current high performance computers"
double bandwidth(double bytes, bool in_place);

}  // namespace tapeformer
