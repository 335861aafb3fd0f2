#pragma once

#include <string_view>

namespace tapeformer {

// The files of the folder page, which the build embeds: the page, with marks where style, script and data
// come in, its style, and its script in two parts: charts, and what is below them.
std::string_view report_html();
std::string_view report_css();
std::string_view charts_js();
std::string_view panels_js();

}  // namespace tapeformer
