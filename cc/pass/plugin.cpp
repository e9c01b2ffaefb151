// The plugin: where the steps meet clang's pipeline.
//
//     pipeline start   prepare: handlers stay functions
//     optimiser last   clones, calls, memory, drivers: on code that is final but for code generation
//
// Invariants
//  1. Both passes are required: they run on functions that the optimiser skips (-O0, optnone).
//  2. A module that was prepared and not hardened cannot be: the second callback is registered with the first.
//
// Not covered: LLVM majors other than 19; the plugin refuses to load there.

#include "../runtime/layout.h"
#include "harden.h"
#include "state.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

static_assert(LLVM_VERSION_MAJOR == 19, "the pass is written for LLVM 19: its pipeline hooks differ between majors");

using namespace llvm;
using namespace steadfast;

namespace {

struct Prepare : PassInfoMixin<Prepare> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    Config C = Config::read(M);
    bool Changed = prepareState(M, C);
    return prepare(M, C) || Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

// The layout that inline code relies on, by a name that only the runtime of the same version has: with another one the
// program does not link.
void nameAbi(Module &M, const Config &C) {
  auto *Abi = cast<GlobalVariable>(M.getOrInsertGlobal(SF_TEXT(SF_ABI_NAME), Type::getInt32Ty(M.getContext())));
  auto *Kept = new GlobalVariable(M, Abi->getType(), true, GlobalValue::PrivateLinkage, Abi, "__sf_abi_used");
  appendToUsed(M, {Kept});
  // The runtime compares all modules' levels with its own (runtime/context.c: one_level).
  auto *I64 = Type::getInt64Ty(M.getContext());
  auto *Level = new GlobalVariable(M, I64, true, GlobalValue::PrivateLinkage, ConstantInt::get(I64, C.Sei ? SF_LEVEL_SEI : SF_LEVEL_FULL),
                                   "__sf_level");
  Level->setSection("sf_levels");
  Level->setAlignment(Align(8));
  appendToUsed(M, {Level});
  if (C.Recover)
    return;
  // The runtime asks whether some object's stores are without --recover's checks.
  auto *Byte = Type::getInt8Ty(M.getContext());
  auto *Unguarded = new GlobalVariable(M, Byte, true, GlobalValue::WeakODRLinkage, ConstantInt::get(Byte, 1), "__sf_unguarded");
  Unguarded->setVisibility(GlobalValue::HiddenVisibility);
  appendToUsed(M, {Unguarded});
}

struct Harden : PassInfoMixin<Harden> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    Config C = Config::read(M);
    Report R(M);
    letArgumentsGo(M);
    reportNames(M, R);
    Clones Made = makeClones(M, C);
    treatCalls(M, C, Made, R);
    announceOutside(M, C, Made, R);
    constantsWithCopies(M, C, Made);
    Homes Home;
    stateInClones(M, C, Made, Home);
    treatReads(M, C, Made, R);
    treatMemory(M, C, Made, R, Home);
    stateOutside(M, C, R);
    duplicateBetween(M, C, Made, R);
    makeDrivers(M, C, Made, R);
    if (!Made.empty())
      nameAbi(M, C);
    if (C.Sei)
      R.line({"P", "sei"});
    R.writeTo(M);
    // Broken code must not be generated: it would be wrong in silence.
    std::string Why;
    raw_string_ostream Out(Why);
    if (verifyModule(M, &Out))
      report_fatal_error(Twine("steadfast: a bug of the pass; the module it made is invalid:\n") + Why, false);
    return PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "steadfast", "1", [](PassBuilder &Builder) {
            Builder.registerPipelineStartEPCallback([](ModulePassManager &MPM, OptimizationLevel) { MPM.addPass(Prepare()); });
            Builder.registerOptimizerLastEPCallback([](ModulePassManager &MPM, OptimizationLevel) { MPM.addPass(Harden()); });
            // By name, for opt and the .ll tests.
            Builder.registerPipelineParsingCallback([](StringRef Name, ModulePassManager &MPM, ArrayRef<PassBuilder::PipelineElement>) {
              if (Name == "steadfast-prepare")
                MPM.addPass(Prepare());
              else if (Name == "steadfast-harden")
                MPM.addPass(Harden());
              else
                return false;
              return true;
            });
          }};
}
