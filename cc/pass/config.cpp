#include "config.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

using namespace llvm;

namespace steadfast {

// Raised together with the driver's (cc/driver/src/policy.rs).
static constexpr StringLiteral Version = "version 5";

const char *wordOf(Class How) {
  switch (How) {
  case Class::Hardened:
    return "hardened";
  case Class::Local:
    return "local";
  case Class::Pure:
    return "pure";
  case Class::Once:
    return "once";
  case Class::Defer:
    return "defer";
  case Class::Wrap:
    return "wrap";
  case Class::Native:
    return "native";
  case Class::Refuse:
    return "refuse";
  }
  llvm_unreachable("every class has a word");
}

void stop(const Twine &Why) {
  errs() << "steadfast: " << Why << '\n';
  sys::RunInterruptHandlers(); // takes away what has been begun to be written
  std::_Exit(1);
}

[[noreturn]] static void notOurs(const Twine &Why) { stop(Why + "\n  fix:   compile with `steadfast cc`, which loads its pass itself"); }

static Bytes bytes(StringRef At, StringRef Unless) {
  Bytes Of;
  auto [A, B] = At.split(':');
  Of.Pointer = A.str();
  Of.IsCrlf = B == "crlf";
  Of.IsLine = Of.IsCrlf || B == "line";
  if (B != "strlen" && !Of.IsLine)
    Of.Length = B.str();
  if (Unless.consume_front("unless=")) {
    auto [What, Mask] = Unless.split('&');
    Of.Unless = What.str();
    if (Mask.getAsInteger(10, Of.Mask))
      notOurs("a mask is needed, found '" + Mask + "'");
  } else if (!Unless.empty()) {
    notOurs("`unless=` is needed, found '" + Unless + "'");
  }
  return Of;
}

static void statement(Config &C, StringRef Line) {
  SmallVector<StringRef, 4> Words;
  Line.split(Words, ' ', -1, false);
  StringRef Verb = Words[0];
  StringRef Name = Words.size() > 1 ? Words[1] : "";
  StringRef Rest = Words.size() > 2 ? Words[2] : "";
  StringRef Last = Words.size() > 3 ? Words[3] : "";
  auto treat = [&](Class How) {
    StringRef Text = Line.split(' ').second.split(' ').second;
    C.Treatments[Name] = {How, Text.str(), C.OfLibrary};
  };
  if (Verb == "library" || Verb == "program") {
    C.OfLibrary = Verb == "library";
  } else if (Verb == "handler" || Verb == "local-handler") {
    HandlerSpec H;
    H.IsLocal = Verb == "local-handler";
    if (Rest.consume_front("input="))
      H.Message = bytes(Rest, Last);
    C.Handlers[Name] = H;
  } else if (Verb == "stream") {
    C.Handlers[Name].IsStream = true;
  } else if (Verb == "output") {
    C.Outputs[Name] = bytes(Rest, Last);
  } else if (Verb == "carries") {
    C.Carries.insert(Name);
  } else if (Verb == "later") {
    C.Later.insert(Name);
  } else if (Verb == "local") {
    treat(Class::Local);
  } else if (Verb == "pure") {
    treat(Class::Pure);
  } else if (Verb == "once") {
    treat(Class::Once);
  } else if (Verb == "defer") {
    treat(Class::Defer);
  } else if (Verb == "wrap") {
    treat(Class::Wrap);
  } else if (Verb == "native") {
    treat(Class::Native);
  } else if (Verb == "refuse") {
    treat(Class::Refuse);
  } else if (Verb == "own") {
    C.Own.insert(Name);
  } else if (Verb == "racy") {
    C.Racy.insert(Name);
  } else if (Verb == "ignore") {
    C.Ignored.insert(Name);
  } else if (Verb == "dup") {
    C.DupVariables.insert(Name);
  } else if (Verb == "crc") {
    C.CrcVariables.insert(Name);
  } else if (Verb == "dup-memory") {
    C.DupMemory.insert(Name);
  } else if (Verb == "crc-memory") {
    C.CrcMemory.insert(Name);
  } else if (Verb == "keeps") {
    C.Keeps[Name] = bytes(Rest, "");
  } else if (Verb == "state") {
    (Name == "dup" ? C.Dup : C.Crc) = true;
  } else if (Verb == "atomics-once") {
    C.AtomicsOnce = true;
  } else if (Verb == "dup-constants") {
    C.DupConstants = true;
  } else if (Verb == "between") {
    C.Between = true;
  } else if (Verb == "async") {
    C.Async = true;
  } else if (Verb == "trace") {
    C.Trace = true;
  } else if (Verb == "recover") {
    C.Recover = true;
  } else if (Verb == "protect") {
    if (Name != "sei")
      notOurs("a level is needed, found '" + Name + "'");
    C.Sei = true;
  } else {
    notOurs("unknown statement '" + Line + "'");
  }
}

static void annotations(Config &C, const Module &M) {
  const GlobalVariable *List = M.getGlobalVariable("llvm.global.annotations");
  if (!List || !List->hasInitializer())
    return;
  auto *Entries = dyn_cast<ConstantArray>(List->getInitializer());
  if (!Entries)
    return;
  for (const Use &Entry : Entries->operands()) {
    auto *Fields = cast<ConstantStruct>(Entry.get());
    auto *F = dyn_cast<Function>(Fields->getOperand(0)->stripPointerCasts());
    auto *G = dyn_cast<GlobalVariable>(Fields->getOperand(0)->stripPointerCasts());
    auto *Text = dyn_cast<GlobalVariable>(Fields->getOperand(1)->stripPointerCasts());
    auto *Bytes = Text && Text->hasInitializer() ? dyn_cast<ConstantDataArray>(Text->getInitializer()) : nullptr;
    if ((!F && !G) || !Bytes || !Bytes->isCString())
      continue;
    StringRef Word = Bytes->getAsCString();
    if (!Word.consume_front("steadfast."))
      continue;
    if (Word == "dup" || Word == "crc") {
      StringSet<> &Set = G ? (Word == "dup" ? C.DupVariables : C.CrcVariables) : Word == "dup" ? C.DupMemory : C.CrcMemory;
      Set.insert(G ? G->getName() : F->getName());
      continue;
    }
    if (!F)
      notOurs("annotation 'steadfast." + Word + "' belongs on a function, found on variable " + G->getName());
    if (Word == "handler")
      C.Handlers.try_emplace(F->getName());
    else if (Word == "local_handler")
      C.Handlers[F->getName()].IsLocal = true;
    else if (Word == "local")
      C.Treatments[F->getName()] = {Class::Local, "", false};
    else if (Word == "pure")
      C.Treatments[F->getName()] = {Class::Pure, "", false};
    else if (Word == "once")
      C.Treatments[F->getName()] = {Class::Once, "", false};
    else if (Word == "defer")
      C.Treatments[F->getName()] = {Class::Defer, "", false};
    else if (Word.consume_front("wrapper:"))
      C.Treatments[Word] = {Class::Wrap, F->getName().str(), false};
    else
      notOurs("unknown annotation 'steadfast." + Word + "' on " + F->getName());
  }
}

Config Config::read(const Module &M) {
  std::optional<std::string> Text = sys::Process::GetEnv("STEADFAST_PASS");
  if (!Text)
    notOurs("the pass was loaded without its settings");
  SmallVector<StringRef, 64> Lines;
  StringRef(*Text).split(Lines, '\n', -1, false);
  if (Lines.empty() || Lines[0] != Version)
    notOurs("settings of another version of the pass: '" + (Lines.empty() ? StringRef() : Lines[0]) + "'");
  Config C;
  for (StringRef Line : drop_begin(Lines))
    statement(C, Line);
  annotations(C, M);
  if (C.Async) {
    // They read memory of the C library, or ask the kernel about a descriptor: a second run elsewhere would see another.
    for (StringRef Name : {"malloc_usable_size", "fileno", "isatty", "getenv", "secure_getenv", "strerror", "strsignal", "gai_strerror"})
      if (C.treatmentOf(Name).How == Class::Pure)
        C.Treatments[Name] = {Class::Once, "", false};
    C.Treatments["qsort"] = {Class::Refuse, "it sorts in memory of its own, which --validate=async does not keep", false};
    C.Treatments["pthread_getspecific"] = {Class::Refuse, "it reads memory that --validate=async does not keep", false};
  }
  if (C.Dup || C.Async) {
    // What is not hardened would read objects where the second run has its copies, or memory that it does not have.
    SmallVector<StringRef, 4> Local;
    for (auto &Entry : C.Treatments)
      if (Entry.second.How == Class::Local)
        Local.push_back(Entry.getKey());
    for (StringRef Name : Local)
      C.Treatments.erase(Name);
  }
  return C;
}

Treatment Config::treatmentOf(StringRef Name) const {
  auto Found = Treatments.find(Name);
  return Found == Treatments.end() ? Treatment{} : Found->second;
}

// Operators new and delete, in any of their forms.
static bool isAllocation(StringRef Name) {
  return Name.starts_with("_Znw") || Name.starts_with("_Zna") || Name.starts_with("_Zdl") || Name.starts_with("_Zda");
}

Treatment Config::treatmentOf(const Function &F) const {
  Treatment T = treatmentOf(F.getName());
  if (!T.OfLibrary || F.isDeclaration())
    return T;
  // The program's own, which the language lets it have: modules that only call them are led there by the runtime (cxx.c).
  if (isAllocation(F.getName()))
    return Treatment{};
  // One that others may call by this name stands in for the library's, and the runtime's wrapper ends there as well.
  bool IsProgram = F.hasLocalLinkage() || (F.hasExternalLinkage() && T.How != Class::Native && T.How != Class::Refuse);
  return IsProgram ? Treatment{} : T;
}

} // namespace steadfast
