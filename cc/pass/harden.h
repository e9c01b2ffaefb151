// The steps of the pass, in the order in which they run on a module.
#ifndef STEADFAST_PASS_HARDEN_H
#define STEADFAST_PASS_HARDEN_H

#include "config.h"
#include "report.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/ValueHandle.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace steadfast {

// The suffix of a clone's symbol. A dot cannot appear in a C identifier.
inline constexpr llvm::StringLiteral CloneSuffix = ".sf";

// On loads of the run's table, which are no loads of the program.
inline constexpr llvm::StringLiteral LookedMetadata = "steadfast.looked";
// On stores that are logged as parts of a range.
inline constexpr llvm::StringLiteral RangedMetadata = "steadfast.ranged";
// On stores that are looked up with their neighbours.
inline constexpr llvm::StringLiteral SharedMetadata = "steadfast.shared";
// On plain loads of what atomic operations change.
inline constexpr llvm::StringLiteral MixedMetadata = "steadfast.mixed";

// Start of the pipeline: keeps handlers and their arguments in one piece through the optimiser.
// Names of the policy's that this module has, as `prepare` found them.
void reportNames(llvm::Module &, Report &);
bool prepare(llvm::Module &, const Config &);
// Plain loads of what atomic operations change become volatile (mixed.cpp).
bool keepMixedLoads(llvm::Module &, const Config &);
// Where an atomic operation, which may be a store, changes memory; nothing for other instructions.
const llvm::Value *atomicTarget(const llvm::Instruction &);
// Takes away what kept the arguments.
void letArgumentsGo(llvm::Module &);

// Original to clone.
using Clones = llvm::MapVector<llvm::Function *, llvm::Function *>;

// End of the pipeline, step 1: clones of everything that a handler might reach.
Clones makeClones(llvm::Module &, const Config &);
// Step 1a: a vector of which a mask says which elements are stored becomes as many stores (lanes.cpp).
// With Loads, the same for loads.
void splitLanes(llvm::Function &F, bool Loads);
// Step 2: in clones, calls go to clones or are treated by class; what cannot be hardened is refused.
void treatCalls(llvm::Module &, const Config &, const Clones &, Report &);
// Step 2a: outside clones, calls that `output` names announce what they send.
void announceOutside(llvm::Module &, const Config &, const Clones &, Report &);
// Step 3: in clones, stores are logged, and loads of what others change are replayed. What goes to a copy (state.h) is
// logged as its object.
void treatMemory(llvm::Module &, const Config &, const Clones &, Report &,
                 const llvm::DenseMap<llvm::Instruction *, llvm::WeakTrackingVH> &Homes);
// In a clone, before its stores: those of loops that fill one range, and are wanted, are marked and treated (ranges.cpp).
void growRanges(llvm::Function &Clone, const Config &, llvm::function_ref<bool(llvm::StoreInst &)> Wanted);
// Which functions and calls of clones stay in the event that they are in: nothing in them ends it, or waits.
class Events {
public:
  Events(const Config &, const Clones &);
  bool mayEnd(const llvm::Instruction &) const;

private:
  const Config &C;
  llvm::SmallPtrSet<const llvm::Function *, 16> Whole; // clones
};
// What has logged all bytes of a store, and how far behind its place the store's lies.
struct Cover {
  llvm::Instruction *First;
  int64_t Distance;
};
using CoveredStores = llvm::MapVector<llvm::StoreInst *, Cover>;
// In a clone, among stores, fills and copies that are wanted (covered.cpp).
CoveredStores coveredStores(llvm::Function &Clone, const Config &, const Events &,
                            llvm::function_ref<bool(const llvm::Instruction &, const llvm::Value *)> Wanted);
// Between stores of one block that are looked up together (memory.cpp), this must not lie.
bool endsNeighbours(const llvm::Instruction &);
// Step 3a, before stores: with --validate=async, loads are kept as well (reads.cpp).
void treatReads(llvm::Module &, const Config &, const Clones &, Report &);
// Step 4: code outside handlers computes everything twice (--between=duplicate).
void duplicateBetween(llvm::Module &, const Config &, const Clones &, Report &);
// Step 5: the handlers' own bodies become: begin, clone, mid, clone, end.
void makeDrivers(llvm::Module &, const Config &, const Clones &, Report &);

// Inside a clone: this construct is not supported. Reaching it stops the program; that a handler can reach it by direct
// calls is an error when the program is linked.
void refuse(llvm::Instruction &, Report &, llvm::StringRef OriginalId, llvm::StringRef What);

// The original's id, for a clone.
std::string originalId(const llvm::Function &Clone);

// enum sf_phase of this thread; 0 outside handlers.
llvm::Value *phaseOf(llvm::IRBuilder<> &);

// A constant C string of this module.
llvm::Constant *text(llvm::Module &, llvm::StringRef);

// Whether stores through this pointer can only reach memory that dies with the frames of this run.
bool isScratch(const llvm::Value *Pointer);

} // namespace steadfast

#endif
