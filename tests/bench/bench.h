#pragma once

namespace tapeformer {

// The benches, each a command of the program `bench` with a file of its own name. They take what follows
// "bench" on the command line, with "bench NAME" as the first argument, and return the exit code.
int bench_allocations(int argc, char** argv);
int bench_attention(int argc, char** argv);
int bench_character_recipe(int argc, char** argv);
int bench_communication(int argc, char** argv);
int bench_decoding(int argc, char** argv);
int bench_device_agreement(int argc, char** argv);
int bench_head_loss(int argc, char** argv);
int bench_linear_attention(int argc, char** argv);
int bench_ops(int argc, char** argv);
int bench_optimizer_step(int argc, char** argv);
int bench_parsing(int argc, char** argv);
int bench_tokenizing(int argc, char** argv);
int bench_train_step(int argc, char** argv);

}  // namespace tapeformer
