#pragma once

namespace mayfly {

/// Lets this process open as many files and sockets as its hard limit allows, at most 16,384. The
/// usual soft limit of 1,024 is meant for programs that call select(2), and is too low for a
/// process to which hundreds of others connect. Programs that it starts from then on inherit the
/// new limit, so it stays low enough for those that close every possible descriptor in a loop.
void raise_descriptor_limit();

}  // namespace mayfly
