#pragma once

// The page, which page/embed.py assembles when Mayfly is built.

#include <string_view>

namespace mayfly::observe {

/// The whole HTML. "<!-- policy -->" and "<!-- data -->" mark the places of the additions for a
/// report.
extern const std::string_view kPage;
/// The sources that the page's policy allows: 'sha256-...' of its script and of its style.
extern const std::string_view kScriptHash;
extern const std::string_view kStyleHash;

}  // namespace mayfly::observe
