// What the driver tells the pass, and what annotations add to it.
//
// The driver has read and checked all policy files; here arrives one normalised text in STEADFAST_PASS, a statement a
// line. The pass therefore never opens a file, and a wrong policy never reaches it.
//
// Invariant: without STEADFAST_PASS, or with another version of it, compiling stops. A plugin that was loaded by hand
// must not produce an object that looks hardened.
#ifndef STEADFAST_PASS_CONFIG_H
#define STEADFAST_PASS_CONFIG_H

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/Module.h"
#include <optional>
#include <string>

namespace steadfast {

// How hardened code calls a function.
enum class Class {
  Hardened, // its hardened clone
  Local,    // as it is: defined here, writes nothing that outlives it
  Pure,     // as it is, in both runs
  Once,     // in the first run only
  Defer,    // after validation
  Wrap,     // the clone of another function in its place
  Native,   // another symbol as it is in its place
  Refuse,   // not at all
};
const char *wordOf(Class);

struct Treatment {
  Class How = Class::Hardened;
  std::string Text;       // Wrap, Native: the other symbol. Refuse: the reason.
  bool OfLibrary = false; // built in: about the library's function of this name
};

// Where bytes are: a message, an output. Each a sum over arguments and fields (place.h).
struct Bytes {
  std::string Pointer, Length; // no length: a string
  bool IsLine = false;         // a string that ends where a line has ended
  bool IsCrlf = false;         // of a line: at the first byte of its end
  std::string Unless;          // not in an event where this, under the mask, is not 0
  uint64_t Mask = 0;
};

struct HandlerSpec {
  bool IsLocal = false;
  bool IsStream = false; // each byte of its message is received, and handled once
  std::optional<Bytes> Message;
};

struct Config {
  llvm::StringMap<Treatment> Treatments;
  llvm::StringMap<HandlerSpec> Handlers;
  llvm::StringMap<Bytes> Outputs;
  llvm::StringSet<> Carries; // functions whose moves of memory move messages
  llvm::StringSet<> Later;   // functions that announce outputs whose bytes come later
  llvm::StringSet<> Racy;
  llvm::StringSet<> Ignored;
  llvm::StringSet<> Own; // said to be the program's; for the check of names alone
  // State at rest (state.cpp): variables, and functions whose allocations are protected.
  llvm::StringSet<> DupVariables, CrcVariables, DupMemory, CrcMemory;
  llvm::StringMap<Bytes> Keeps; // functions of libraries that keep and write what they are given
  bool Dup = false, Crc = false; // --state
  bool DupConstants = false;     // with Dup: constants that handlers read have a copy as well
  bool AtomicsOnce = false;
  bool Between = false; // --between=duplicate
  bool Async = false;   // --validate=async: loads are kept for a second run that comes later
  bool Recover = false; // --recover: each store's address is compared with what was logged, before it and behind it
  bool Sei = false;     // --protect=sei: no check that the paper's rules do not have
  bool Trace = false;   // --find-nondeterminism: report every store to the runtime

  // From the environment and the annotations of this module.
  static Config read(const llvm::Module &);

  Treatment treatmentOf(llvm::StringRef Name) const;
  // The same, but that a program's function is not the library's of the same name.
  Treatment treatmentOf(const llvm::Function &) const;

  bool OfLibrary = false; // while settings are read: those that are built in
};

// The user's mistake: compiling ends with these words alone. LLVM's own fatal error would add a stack of the compiler, and ask
// for a report to its authors.
[[noreturn]] void stop(const llvm::Twine &Why);

} // namespace steadfast

#endif
