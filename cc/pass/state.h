// Objects with copies or checksums (state.cpp).
#ifndef STEADFAST_PASS_STATE_H
#define STEADFAST_PASS_STATE_H

#include "harden.h"

namespace steadfast {

// Stores and copies of clones whose destination is the run's own: the object that they are logged as.
// Handles, since a load that such an address came from may be replaced meanwhile (a volatile one: memory.cpp, load).
using Homes = llvm::DenseMap<llvm::Instruction *, llvm::WeakTrackingVH>;

// Start of the pipeline: sections of variables, allocations of functions.
bool prepareState(llvm::Module &, const Config &);
// Before that: constants that clones read become objects with a copy, if the policy says so (dup-constants).
void constantsWithCopies(llvm::Module &, const Config &, const Clones &);
// After calls were treated and before stores are logged.
void stateInClones(llvm::Module &, const Config &, const Clones &, Homes &);
// All code but clones, before handlers become drivers.
void stateOutside(llvm::Module &, const Config &, Report &);

} // namespace steadfast

#endif
