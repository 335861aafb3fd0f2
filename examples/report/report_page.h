#pragma once

namespace tapeformer {

// The files of the folder page, which the build embeds: the page, with marks where style, script and data
// come in, its style, and its script in two parts: charts, and what is below them.
extern const char* const kReportHtml;
extern const char* const kReportCss;
extern const char* const kReportCharts;
extern const char* const kReportPanels;

}  // namespace tapeformer
