#pragma once

// The subcommands, one function each; cli.cpp lists them with what they accept.

#include "cli/arguments.hpp"
#include "cli/context.hpp"

namespace mayfly::cli {

// launch_commands.cpp: processes of a job.
int train(const ParsedArguments& arguments, Context& context);
int worker(const ParsedArguments& arguments, Context& context);
int ps_server(const ParsedArguments& arguments, Context& context);
int coordinator(const ParsedArguments& arguments, Context& context);

// operator_commands.cpp: questions and orders to a running job.
int status(const ParsedArguments& arguments, Context& context);
int scale(const ParsedArguments& arguments, Context& context);
int drain(const ParsedArguments& arguments, Context& context);
int pause(const ParsedArguments& arguments, Context& context);
int resume(const ParsedArguments& arguments, Context& context);
int stop(const ParsedArguments& arguments, Context& context);

// cloud_commands.cpp: a job's servers.
int cloud(const ParsedArguments& arguments, Context& context);

// inspect_command.cpp: how a network is computed here, or what is in a checkpoint.
int inspect(const ParsedArguments& arguments, Context& context);

// checkpoint_commands.cpp and evaluate_command.cpp: checkpoints on disk.
int inspect_checkpoint(const ParsedArguments& arguments, Context& context);
int digest(const ParsedArguments& arguments, Context& context);
int evaluate(const ParsedArguments& arguments, Context& context);
// evaluator_command.cpp: the same for every checkpoint of a run, as it appears.
int evaluator(const ParsedArguments& arguments, Context& context);

// weight_commands.cpp: weights for and from PyTorch.
int export_weights(const ParsedArguments& arguments, Context& context);
int import_weights(const ParsedArguments& arguments, Context& context);

// bundle_command.cpp: an archive of this program, to install it on other machines.
int bundle(const ParsedArguments& arguments, Context& context);
// token_command.cpp: the secret of a job whose processes are started by hand.
int token(const ParsedArguments& arguments, Context& context);

// documentation_command.cpp: manual pages and shell completions.
int documentation(const ParsedArguments& arguments, Context& context);

// compare_command.cpp: the same job under several kinds of synchronisation.
int compare(const ParsedArguments& arguments, Context& context);
// The same command file: a search for the earliest acceptable switch between two policies.
int tune_switch(const ParsedArguments& arguments, Context& context);

// dashboard_command.cpp: the records of runs as a page.
int dashboard(const ParsedArguments& arguments, Context& context);

// cli.cpp
int version(const ParsedArguments& arguments, Context& context);

}  // namespace mayfly::cli
