// Clones, and the calls in them.
//
// Which functions a handler reaches is known only when the program is linked: modules are compiled one by one. So every
// function that other modules or pointers can reach gets a clone, and those that these reach; the linker's view
// (.steadfast.cov) decides afterwards what matters. A call to a function of another module goes to NAME.sf, for which
// this module brings a weak definition that stops the program; the module that defines NAME overrides it.
//
// Invariants
//  1. In a clone no call is left that was not looked at: its class is in the report.
//  2. Clones and calls in them carry no promise about memory (noalias, memory(...), nocapture): the log breaks them.
//
// Not covered: clones of functions that are only declared inline elsewhere (available_externally): the module that
// defines them has the clone.

#include "harden.h"
#include "labels.h"
#include "place.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

using namespace llvm;

namespace steadfast {

static constexpr StringLiteral OriginalAttr = "steadfast-original";

// Locals are zeroed so that both runs begin alike (-ftrivial-auto-var-init). Outside handlers nobody needs that, and a
// server that keeps kilobytes in the frame of its loop pays for them with each event: large ones are zeroed in runs only.
// Said at the start of the pipeline, as a branch that all can see: later the optimiser may have relied on the zeroes.
static bool zeroInRunsOnly(Function &F) {
  constexpr uint64_t LargeBytes = 256; // below, a branch costs as much as the stores
  SmallVector<MemSetInst *, 4> Large;
  for (Instruction &I : instructions(F)) {
    auto *Set = dyn_cast<MemSetInst>(&I);
    MDNode *Notes = Set ? Set->getMetadata(LLVMContext::MD_annotation) : nullptr;
    if (!Notes || !any_of(Notes->operands(), [](const MDOperand &O) {
          auto *Text = dyn_cast<MDString>(O);
          return Text && Text->getString() == "auto-init";
        }))
      continue;
    auto *Length = dyn_cast<ConstantInt>(Set->getLength());
    if (!Length || Length->getZExtValue() >= LargeBytes)
      Large.push_back(Set);
  }
  for (MemSetInst *Set : Large) {
    IRBuilder<> B(Set);
    Value *Inside = B.CreateIsNotNull(phaseOf(B));
    Instruction *Then = SplitBlockAndInsertIfThen(Inside, Set, false);
    Set->moveBefore(Then);
  }
  return !Large.empty();
}

// Bytes of a type that no member covers, or that may be such (unions, explicit padding: arrays of i8 in a structure).
// They are copied with the whole, and then compared.
static bool hasHoles(Type *T, const DataLayout &Layout) {
  if (auto *A = dyn_cast<ArrayType>(T))
    return hasHoles(A->getElementType(), Layout);
  auto *S = dyn_cast<StructType>(T);
  if (!S || !S->isSized())
    return false;
  if (Layout.getStructLayout(S)->hasPadding())
    return true;
  return any_of(S->elements(), [&](Type *E) {
    auto *Bytes = dyn_cast<ArrayType>(E);
    return (Bytes && Bytes->getElementType()->isIntegerTy(8)) || hasHoles(E, Layout);
  });
}

// The front end zeroes variables, not what it makes itself for values in passing (a structure that a function returns, an
// argument). What lay there before would get into their holes, and differs between the runs.
static bool zeroTemporaries(Function &F) {
  const DataLayout &Layout = F.getParent()->getDataLayout();
  SmallVector<AllocaInst *, 16> Open;
  for (Instruction &I : F.getEntryBlock())
    if (auto *A = dyn_cast<AllocaInst>(&I); A && A->isStaticAlloca() && !A->isSwiftError() && !A->isUsedWithInAlloca())
      if (hasHoles(A->getAllocatedType(), Layout) && none_of(A->users(), [](const User *U) {
            return isa<Instruction>(U) && cast<Instruction>(U)->hasMetadata(LLVMContext::MD_annotation);
          }))
        Open.push_back(A);
  for (AllocaInst *A : Open) {
    std::optional<TypeSize> Bytes = A->getAllocationSize(Layout);
    if (!Bytes || Bytes->isScalable())
      continue;
    SmallVector<Instruction *, 4> Begins;
    for (User *U : A->users())
      if (auto *II = dyn_cast<IntrinsicInst>(U); II && II->getIntrinsicID() == Intrinsic::lifetime_start)
        Begins.push_back(II->getNextNode());
    if (Begins.empty())
      Begins.push_back(&*F.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    for (Instruction *At : Begins) {
      CallInst *Set = IRBuilder<>(At).CreateMemSet(A, IRBuilder<>(At).getInt8(0), Bytes->getFixedValue(), A->getAlign());
      Set->addAnnotationMetadata("auto-init"); // as what the front end zeroes: zeroInRunsOnly, remarks
    }
  }
  return !Open.empty();
}

// Moves of messages: copies of a length that only running tells. What is as long as a type is an assignment.
static bool carry(Function &F) {
  Module &M = *F.getParent();
  LLVMContext &Ctx = M.getContext();
  Type *Pointer = PointerType::getUnqual(Ctx), *Size = Type::getInt64Ty(Ctx);
  SmallVector<CallBase *, 8> Moves;
  for (Instruction &I : instructions(F)) {
    auto *Call = dyn_cast<CallBase>(&I);
    if (!Call)
      continue;
    auto *Move = dyn_cast<MemTransferInst>(Call);
    Function *Callee = Call->getCalledFunction();
    StringRef Name = Callee ? Callee->getName() : "";
    bool IsMove = Name == "memcpy" || Name == "memmove" || Name == "__memcpy_chk" || Name == "__memmove_chk";
    if (Move ? !Move->isVolatile() && !isa<ConstantInt>(Move->getLength()) : IsMove || Name == "realloc")
      Moves.push_back(Call);
  }
  for (CallBase *Call : Moves) {
    IRBuilder<> B(Call);
    bool IsRealloc = Call->arg_size() == 2;
    Value *To = IsRealloc
                    ? B.CreateCall(M.getOrInsertFunction("__sf_provenance_realloc", Pointer, Pointer, Size),
                                   {Call->getArgOperand(0), Call->getArgOperand(1)})
                    : B.CreateCall(M.getOrInsertFunction("__sf_provenance_move", Pointer, Pointer, Pointer, Size),
                                   {Call->getArgOperand(0), Call->getArgOperand(1), B.CreateZExtOrTrunc(Call->getArgOperand(2), Size)});
    if (!Call->getType()->isVoidTy())
      Call->replaceAllUsesWith(To);
    if (auto *Invoke = dyn_cast<InvokeInst>(Call)) {
      B.CreateBr(Invoke->getNormalDest());
      Invoke->getUnwindDest()->removePredecessor(Invoke->getParent());
    }
    Call->eraseFromParent();
  }
  return !Moves.empty();
}

// What a policy names and this module has, before the optimiser takes anything away: Harden reports it (N), and a name that no module
// has is an error when the program is linked.
static const char NamedMetadata[] = "steadfast.names";

static void noteNames(Module &M, const Config &C) {
  LLVMContext &Ctx = M.getContext();
  NamedMDNode *Node = M.getOrInsertNamedMetadata(NamedMetadata);
  auto note = [&](StringRef Name, bool Variable) {
    const GlobalValue *Found = M.getNamedValue(Name);
    if (Found && isa<GlobalVariable>(Found) == Variable)
      Node->addOperand(MDNode::get(Ctx, MDString::get(Ctx, Name)));
  };
  for (auto &Entry : C.Treatments)
    if (!Entry.second.OfLibrary)
      note(Entry.getKey(), false);
  for (const StringSet<> *Functions : {&C.DupMemory, &C.CrcMemory, &C.Own})
    for (auto &Entry : *Functions)
      note(Entry.getKey(), false);
  for (const StringSet<> *Variables : {&C.Racy, &C.Ignored, &C.DupVariables, &C.CrcVariables})
    for (auto &Entry : *Variables)
      note(Entry.getKey(), true);
}

void reportNames(Module &M, Report &R) {
  NamedMDNode *Node = M.getNamedMetadata(NamedMetadata);
  if (!Node)
    return;
  for (const MDNode *Name : Node->operands())
    R.once({"N", cast<MDString>(Name->getOperand(0))->getString()});
  Node->eraseFromParent();
}

// What a function does not read itself its driver may, such as a message's length: without a use the optimiser hands poison over in its
// place (dead argument elimination).
static const char KeptText[] = "# steadfast: arguments";

static void keepArguments(Function &F) {
  auto *Void = Type::getVoidTy(F.getContext());
  IRBuilder<> B(&*F.getEntryBlock().getFirstInsertionPt());
  for (Argument &A : F.args()) {
    if (!A.getType()->isIntOrPtrTy())
      continue;
    auto *Asm = InlineAsm::get(FunctionType::get(Void, {A.getType()}, false), KeptText, "X", /*hasSideEffects=*/true);
    CallInst *Use = B.CreateCall(Asm, {&A});
    Use->setDoesNotThrow();
    Use->setMemoryEffects(MemoryEffects::inaccessibleMemOnly());
  }
}

void letArgumentsGo(Module &M) {
  for (Function &F : M)
    for (Instruction &I : make_early_inc_range(instructions(F)))
      if (auto *Call = dyn_cast<CallInst>(&I))
        if (auto *Asm = dyn_cast<InlineAsm>(Call->getCalledOperand()); Asm && Asm->getAsmString() == KeptText)
          Call->eraseFromParent();
}

bool prepare(Module &M, const Config &C) {
  bool Changed = false;
  noteNames(M, C);
  for (Function &F : M)
    if (!F.isDeclaration() && C.Carries.count(F.getName()))
      Changed |= carry(F);
  for (Function &F : M)
    if (!F.isDeclaration() && !F.hasFnAttribute(Attribute::Naked)) {
      Changed |= zeroTemporaries(F);
      Changed |= zeroInRunsOnly(F);
    }
  SmallVector<GlobalValue *, 8> Kept;
  for (Function &F : M) {
    if (F.isDeclaration())
      continue;
    Treatment T = C.treatmentOf(F);
    bool IsHandler = C.Handlers.count(F.getName());
    bool IsWrapper =
        any_of(C.Treatments, [&](const auto &Entry) { return Entry.second.How == Class::Wrap && Entry.second.Text == F.getName(); });
    if (!IsHandler && !IsWrapper && T.How == Class::Hardened && !C.Outputs.count(F.getName()) && !C.Later.count(F.getName()) &&
        !C.Carries.count(F.getName()))
      continue;
    // The name is what the policy speaks of, so the function must stay a function; and an argument that is counted must
    // stay where it is, which a use other than a call sees to.
    F.removeFnAttr(Attribute::AlwaysInline);
    F.addFnAttr(Attribute::NoInline);
    if (!F.hasFnAttribute(Attribute::Naked))
      keepArguments(F);
    Kept.push_back(&F);
    Changed = true;
  }
  appendToCompilerUsed(M, Kept);
  // A racy variable is read once per source-level read, and the optimiser may not merge or repeat these.
  for (auto &Entry : C.Racy) {
    GlobalVariable *Racy = M.getGlobalVariable(Entry.getKey(), /*AllowInternal=*/true);
    if (!Racy)
      continue;
    for (Function &F : M)
      for (Instruction &I : instructions(F))
        if (auto *Load = dyn_cast<LoadInst>(&I); Load && getUnderlyingObject(Load->getPointerOperand()) == Racy) {
          Load->setVolatile(true);
          Changed = true;
        }
  }
  return keepMixedLoads(M, C) || Changed;
}

// What a calling convention is made of; everything else on arguments and results is a promise that may no longer hold.
static AttributeSet conventionOnly(LLVMContext &Ctx, AttributeSet Set) {
  AttrBuilder Kept(Ctx);
  for (Attribute A : Set) {
    if (A.isStringAttribute())
      continue;
    switch (A.getKindAsEnum()) {
    case Attribute::ZExt:
    case Attribute::SExt:
    case Attribute::InReg:
    case Attribute::ByVal:
    case Attribute::ByRef:
    case Attribute::StructRet:
    case Attribute::InAlloca:
    case Attribute::Preallocated:
    case Attribute::Nest:
    case Attribute::Alignment:
    case Attribute::StackAlignment:
    case Attribute::SwiftSelf:
    case Attribute::SwiftError:
    case Attribute::SwiftAsync:
    case Attribute::ElementType:
      Kept.addAttribute(A);
      break;
    default:
      break;
    }
  }
  return AttributeSet::get(Ctx, Kept);
}

static AttributeSet functionOnly(LLVMContext &Ctx, AttributeSet Set) {
  AttrBuilder Kept(Ctx, Set);
  for (auto Kind :
       {Attribute::Memory, Attribute::AllocKind, Attribute::AllocSize, Attribute::NoSync, Attribute::Speculatable, Attribute::WillReturn,
        Attribute::NoFree, Attribute::NoRecurse, Attribute::MustProgress, Attribute::NoCallback, Attribute::Builtin})
    Kept.removeAttribute(Kind);
  Kept.removeAttribute("alloc-family");
  return AttributeSet::get(Ctx, Kept);
}

static AttributeList withoutPromises(LLVMContext &Ctx, const AttributeList &All, unsigned Arguments) {
  SmallVector<AttributeSet, 8> Params;
  for (unsigned I = 0; I != Arguments; ++I)
    Params.push_back(conventionOnly(Ctx, All.getParamAttrs(I)));
  return AttributeList::get(Ctx, functionOnly(Ctx, All.getFnAttrs()), conventionOnly(Ctx, All.getRetAttrs()), Params);
}

static bool mayHaveClone(const Function &F, const Config &C) {
  if (F.isDeclaration() || F.hasAvailableExternallyLinkage() || F.getName().starts_with("__sf_") || F.getName().starts_with("llvm.") ||
      F.getName().ends_with(CloneSuffix) || F.hasFnAttribute(Attribute::Naked))
    return false;
  Class How = C.treatmentOf(F).How;
  return How == Class::Hardened || How == Class::Wrap;
}

// What the loader alone calls (constructors of static objects) is not a pointer that a handler could find.
static bool isStartOnly(const Function &F) {
  if (!F.hasLocalLinkage() || !F.hasOneUse())
    return false;
  auto *Entry = dyn_cast<ConstantStruct>(F.user_back());
  return Entry && all_of(Entry->users(), [](const User *List) {
           // A structure by itself is a variable's, whose address other modules may take.
           return isa<ConstantArray>(List) && all_of(List->users(), [](const User *G) {
                    auto *Variable = dyn_cast<GlobalVariable>(G);
                    return Variable && (Variable->getName() == "llvm.global_ctors" || Variable->getName() == "llvm.global_dtors");
                  });
         });
}

static bool isAddressTaken(const Function &F) {
  if (isStartOnly(F))
    return false;
  return F.hasAddressTaken(nullptr, /*IgnoreCallbackUses=*/true, /*IgnoreAssumeLikeCalls=*/true,
                           /*IgnoreLLVMUsed=*/true);
}

// A clone, with tables of its own for its own labels (labels.h).
static Function *cloneOf(Module &M, Function &F) {
  ValueToValueMapTy Map;
  SmallVector<GlobalVariable *, 2> Tables;
  if (Labels L = labelsOf(F); L.Stay)
    Tables = L.Tables;
  for (GlobalVariable *Table : Tables) {
    auto *Own = new GlobalVariable(M, Table->getValueType(), Table->isConstant(), GlobalValue::InternalLinkage,
                                   Constant::getNullValue(Table->getValueType()), Table->getName() + CloneSuffix);
    Own->setAlignment(Table->getAlign());
    Map[Table] = Own;
  }
  Function *Clone = CloneFunction(&F, Map);
  for (GlobalVariable *Table : Tables)
    cast<GlobalVariable>(Map[Table])->setInitializer(MapValue(Table->getInitializer(), Map));
  return Clone;
}

Clones makeClones(Module &M, const Config &C) {
  SetVector<Function *> Wanted;
  for (Function &F : M)
    if (mayHaveClone(F, C) &&
        (!F.hasLocalLinkage() || C.Handlers.count(F.getName()) || isAddressTaken(F) ||
         any_of(C.Treatments, [&](const auto &E) { return E.second.How == Class::Wrap && E.second.Text == F.getName(); })))
      Wanted.insert(&F);
  for (size_t I = 0; I != Wanted.size(); ++I)
    for (Instruction &In : instructions(*Wanted[I]))
      if (auto *Call = dyn_cast<CallBase>(&In))
        if (auto *Callee = dyn_cast<Function>(Call->getCalledOperand()->stripPointerCastsAndAliases()))
          if (mayHaveClone(*Callee, C))
            Wanted.insert(Callee);

  Clones Made;
  LLVMContext &Ctx = M.getContext();
  for (Function *F : Wanted) {
    Function *Clone = cloneOf(M, *F);
    Clone->setName(F->getName() + CloneSuffix);
    Clone->setLinkage(F->getLinkage());
    // Never of use outside the program: that of a shared library would run beside the program's own runtime.
    Clone->setVisibility(F->hasLocalLinkage() ? GlobalValue::DefaultVisibility : GlobalValue::HiddenVisibility);
    Clone->setDSOLocal(true);
    if (Comdat *Group = F->getComdat(); Group && F->hasLocalLinkage()) {
      // Its name is this module's alone, and says nothing to others about what is the same: it goes with its original.
      Clone->setComdat(Group);
    } else if (Group) {
      Comdat *Own = M.getOrInsertComdat(Clone->getName());
      Own->setSelectionKind(Group->getSelectionKind());
      Clone->setComdat(Own);
    }
    Clone->setAttributes(withoutPromises(Ctx, Clone->getAttributes(), Clone->arg_size()));
    Clone->addFnAttr(OriginalAttr, idOf(*F));
    Clone->removeFnAttr(Attribute::NoInline);
    if (Clone->hasFnAttribute(Attribute::OptimizeNone))
      Clone->addFnAttr(Attribute::NoInline); // the two go together
    Made.insert({F, Clone});
  }
  for (GlobalAlias &Alias : M.aliases())
    if (auto *F = dyn_cast<Function>(Alias.getAliasee()->stripPointerCasts()))
      if (Function *Clone = Made.lookup(F); Clone && !Alias.getName().ends_with(CloneSuffix))
        GlobalAlias::create(Clone->getValueType(), 0, Alias.getLinkage(), Alias.getName() + CloneSuffix, Clone, &M)
            ->setVisibility(Alias.hasLocalLinkage() ? GlobalValue::DefaultVisibility : GlobalValue::HiddenVisibility);
  return Made;
}

std::string originalId(const Function &Clone) { return Clone.getFnAttribute(OriginalAttr).getValueAsString().str(); }

Constant *text(Module &M, StringRef Text) {
  IRBuilder<> B(M.getContext());
  std::string Name = ("__sf_text." + Text).str();
  if (GlobalVariable *Found = M.getGlobalVariable(Name, true))
    return Found;
  auto *Bytes = ConstantDataArray::getString(M.getContext(), Text);
  auto *G = new GlobalVariable(M, Bytes->getType(), true, GlobalValue::PrivateLinkage, Bytes, Name);
  G->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
  G->setAlignment(Align(1));
  return G;
}

void refuse(Instruction &I, Report &R, StringRef Id, StringRef What) {
  Module &M = *I.getModule();
  IRBuilder<> B(&I);
  std::string Where = whereIs(I);
  auto Refuse = M.getOrInsertFunction("__sf_refuse", B.getVoidTy(), B.getPtrTy(), B.getPtrTy());
  B.CreateCall(Refuse, {text(M, What), text(M, Where)});
  R.once({"R", Id, What, Where});
}

// Every module that calls NAME.sf without defining it brings this; the definition elsewhere wins over it, and of several of these
// one stays, so where the call was is found by its frame (runtime/fail.c). It names the
// original: where a handler's own body was the only one to call it, nothing else takes its object out of an archive.
static Function *cloneInOtherModule(Module &M, Function &Original, FunctionType *Type) {
  std::string Name = (Original.getName() + CloneSuffix).str();
  if (Function *Found = M.getFunction(Name); Found && !Found->isDeclaration())
    return Found;
  Function *F = Function::Create(Type, GlobalValue::WeakAnyLinkage, Name, M);
  F->setCallingConv(Original.getCallingConv());
  F->addFnAttr(Attribute::Cold);
  F->addFnAttr(Attribute::NoInline);
  F->addFnAttr("frame-pointer", "all");
  IRBuilder<> B(BasicBlock::Create(M.getContext(), "", F));
  auto Refuse = M.getOrInsertFunction("__sf_refuse", B.getVoidTy(), B.getPtrTy(), B.getPtrTy());
  auto *WithOriginal = FunctionType::get(B.getVoidTy(), {B.getPtrTy(), B.getPtrTy(), B.getPtrTy()}, false);
  B.CreateCall(WithOriginal, Refuse.getCallee(),
               {text(M, "a call of a function that has no hardened code: " + Original.getName().str()),
                ConstantPointerNull::get(B.getPtrTy()), &Original});
  B.CreateUnreachable();
  return F;
}

// Any scalar as 64 bits, for the runtime to compare and replay. Nothing for what does not fit.
static Value *toWord(IRBuilder<> &B, Value *V) {
  Type *T = V->getType();
  if (T->isPointerTy())
    return B.CreatePtrToInt(V, B.getInt64Ty());
  if (T->isFloatTy())
    return B.CreateZExt(B.CreateBitCast(V, B.getInt32Ty()), B.getInt64Ty());
  if (T->isDoubleTy())
    return B.CreateBitCast(V, B.getInt64Ty());
  if (T->isIntegerTy() && T->getIntegerBitWidth() <= 64)
    return B.CreateZExt(V, B.getInt64Ty());
  return nullptr;
}

static Value *fromWord(IRBuilder<> &B, Value *Word, Type *T) {
  if (T->isPointerTy())
    return B.CreateIntToPtr(Word, T);
  if (T->isFloatTy())
    return B.CreateBitCast(B.CreateTrunc(Word, B.getInt32Ty()), T);
  if (T->isDoubleTy())
    return B.CreateBitCast(Word, T);
  return B.CreateTrunc(Word, T);
}

static bool fitsWord(Type *T) {
  return T->isPointerTy() || T->isFloatTy() || T->isDoubleTy() || (T->isIntegerTy() && T->getIntegerBitWidth() <= 64);
}

// A rolling mix of the arguments, one multiplication each: the runtime compares it between runs.
static Value *mixOf(IRBuilder<> &B, ArrayRef<Value *> Arguments) {
  Value *Mix = B.getInt64(0x9e3779b97f4a7c15); // 2^64 / golden ratio: odd, bits spread evenly
  for (Value *A : Arguments) {
    Mix = B.CreateXor(Mix, toWord(B, A));
    Mix = B.CreateMul(Mix, B.getInt64(0xff51afd7ed558ccd)); // odd, so no bit of an argument is lost
    Mix = B.CreateXor(Mix, B.CreateLShr(Mix, 32));
  }
  return Mix;
}

// Executes I in the first run only; in the second its result comes from the runtime.
static bool makeOnce(Instruction &I, StringRef Name, ArrayRef<Value *> Arguments) {
  // Of a compare-and-swap the old value is kept: on x86-64 it has swapped if that is the expected one.
  auto *Swap = dyn_cast<AtomicCmpXchgInst>(&I);
  auto *Call = dyn_cast<CallInst>(&I);
  Type *T = Swap ? Swap->getCompareOperand()->getType() : I.getType();
  if ((!T->isVoidTy() && !fitsWord(T)) || I.isTerminator() || (Call && Call->isMustTailCall()) ||
      !all_of(Arguments, [](Value *V) { return fitsWord(V->getType()); }))
    return false;
  Module &M = *I.getModule();
  IRBuilder<> B(&I);
  auto Once = M.getOrInsertFunction("__sf_once", B.getInt32Ty(), B.getPtrTy(), B.getInt64Ty(), B.getPtrTy());
  auto Done = M.getOrInsertFunction("__sf_once_done", B.getVoidTy(), B.getInt64Ty());
  IRBuilder<> Entry(&*I.getFunction()->getEntryBlock().getFirstInsertionPt());
  Value *Slot = Entry.CreateAlloca(B.getInt64Ty());
  Value *Replayed = B.CreateCall(Once, {text(M, Name), mixOf(B, Arguments), Slot});
  Value *IsFirst = B.CreateICmpEQ(Replayed, B.getInt32(0));
  Instruction *Then, *Else;
  SplitBlockAndInsertIfThenElse(IsFirst, &I, &Then, &Else);
  BasicBlock *After = I.getParent();
  I.moveBefore(Then);
  B.SetInsertPoint(Then);
  B.CreateCall(Done, {T->isVoidTy() ? B.getInt64(0) : toWord(B, Swap ? B.CreateExtractValue(Swap, 0) : &I)});
  if (T->isVoidTy())
    return true;
  B.SetInsertPoint(Else);
  Value *Again = fromWord(B, B.CreateLoad(B.getInt64Ty(), Slot), T);
  if (Swap) {
    Value *Swapped = B.CreateICmpEQ(Again, Swap->getCompareOperand());
    Again = B.CreateInsertValue(B.CreateInsertValue(PoisonValue::get(I.getType()), Again, 0), Swapped, 1);
  }
  auto *Result = PHINode::Create(I.getType(), 2, "", After->begin());
  I.replaceUsesWithIf(Result, [&](Use &U) { return cast<Instruction>(U.getUser())->getParent() != I.getParent(); });
  Result->addIncoming(&I, Then->getParent());
  Result->addIncoming(Again, Else->getParent());
  return true;
}

static bool makeDeferred(CallBase &Call, Function &Callee) {
  // What nobody looks at need not be known.
  if (!Call.use_empty() || Call.arg_size() > 6 || Call.isTerminator() || !all_of(Call.args(), [](const Use &U) {
        return U->getType()->isPointerTy() || (U->getType()->isIntegerTy() && fitsWord(U->getType()));
      }))
    return false;
  Module &M = *Call.getModule();
  IRBuilder<> B(&Call);
  auto Defer = M.getOrInsertFunction("__sf_defer", B.getVoidTy(), B.getPtrTy(), B.getPtrTy(), B.getInt64Ty(), B.getPtrTy());
  IRBuilder<> Entry(&*Call.getFunction()->getEntryBlock().getFirstInsertionPt());
  Value *List = Entry.CreateAlloca(ArrayType::get(B.getInt64Ty(), 6));
  for (unsigned I = 0; I != Call.arg_size(); ++I)
    B.CreateStore(toWord(B, Call.getArgOperand(I)), B.CreateConstGEP2_64(ArrayType::get(B.getInt64Ty(), 6), List, 0, I));
  B.CreateCall(Defer, {text(M, Callee.getName()), &Callee, B.getInt64(Call.arg_size()), List});
  Call.eraseFromParent();
  return true;
}

// Asm that only computes: no memory, no effect, or nothing at all (a barrier for the compiler).
static bool isHarmless(const CallBase &Call, const InlineAsm &Asm) {
  if (StringRef(Asm.getAsmString()).trim().empty())
    return true;
  if (Asm.hasSideEffects())
    return false;
  for (const InlineAsm::ConstraintInfo &K : Asm.ParseConstraints())
    if (K.isIndirect || (K.Type == InlineAsm::isClobber && is_contained(K.Codes, "{memory}")))
      return false;
  return true;
}

// Intrinsics that write no memory of the program, whatever their attributes say.
static bool isHarmless(const IntrinsicInst &I) {
  if (!I.mayWriteToMemory() || isa<DbgInfoIntrinsic>(I) || I.isAssumeLikeIntrinsic() || isa<ConstrainedFPIntrinsic>(I))
    return true;
  switch (I.getIntrinsicID()) {
  case Intrinsic::memcpy: // treatMemory's
  case Intrinsic::memcpy_inline:
  case Intrinsic::memmove:
  case Intrinsic::memset:
  case Intrinsic::memset_inline:
  case Intrinsic::vaend:
  case Intrinsic::stacksave:
  case Intrinsic::stackrestore:
  case Intrinsic::prefetch:
  case Intrinsic::trap:
  case Intrinsic::debugtrap:
  case Intrinsic::ubsantrap:
  case Intrinsic::eh_typeid_for:
  case Intrinsic::donothing:
  case Intrinsic::get_rounding:
  case Intrinsic::threadlocal_address:
  case Intrinsic::launder_invariant_group:
  case Intrinsic::strip_invariant_group:
  // Order alone; atomic instructions themselves are treated.
  case Intrinsic::x86_sse_sfence:
  case Intrinsic::x86_sse2_lfence:
  case Intrinsic::x86_sse2_mfence:
  case Intrinsic::x86_sse2_pause:
    return true;
  case Intrinsic::vastart:
  case Intrinsic::vacopy:
    return isScratch(I.getArgOperand(0));
  default:
    return false;
  }
}

// Before a call that the policy's output statement names: what it sends. What does not fit, or nothing.
static std::string announce(CallBase &Call, const Function &Callee, const Config &C, StringRef In, StringRef Runtime) {
  auto Out = C.Outputs.find(Callee.getName());
  if (Out == C.Outputs.end())
    return "";
  const Bytes &Spec = Out->second;
  SmallVector<Value *, 8> Arguments(Call.args());
  std::string Why;
  IRBuilder<> B(&Call);
  bool IsLater = C.Later.count(In.substr(In.rfind(':') + 1));
  Value *Skip = IsLater ? B.getInt64(1) : Spec.Unless.empty() ? B.getInt64(0) : placeOf(B, Callee, Arguments, Spec.Unless, Why);
  Value *At = Skip ? placeOf(B, Callee, Arguments, Spec.Pointer, Why) : nullptr;
  Value *Length = At ? placeOf(B, Callee, Arguments, Spec.Length, Why) : nullptr;
  if (!Length)
    return ("a call of " + Callee.getName() + ", where the policy's output statement does not fit: " + Why).str();
  auto Output = Callee.getParent()->getFunction(Runtime) ? FunctionCallee(Callee.getParent()->getFunction(Runtime)) : FunctionCallee();
  if (!Output)
    Output =
        const_cast<Module *>(Callee.getParent())->getOrInsertFunction(Runtime, B.getVoidTy(), B.getPtrTy(), B.getInt64Ty(), B.getInt64Ty());
  B.CreateCall(Output, {B.CreateIntToPtr(At, B.getPtrTy()), Length, IsLater ? Skip : B.CreateAnd(Skip, Spec.Mask)});
  return "";
}

void announceOutside(Module &M, const Config &C, const Clones &Made, Report &R) {
  for (Function &F : M)
    if (C.Outputs.count(F.getName()) || C.Keeps.count(F.getName()) ||
        (!F.isDeclaration() && (C.Later.count(F.getName()) || C.Carries.count(F.getName()))))
      R.once({"K", F.getName()});
  if (C.Outputs.empty())
    return;
  SmallPtrSet<const Function *, 32> Clone;
  for (auto &[Original, Hardened] : Made)
    Clone.insert(Hardened);
  for (Function &F : M) {
    // A handler's own body is no longer called: its driver takes its place.
    if (F.isDeclaration() || Clone.count(&F) || C.Handlers.count(F.getName()))
      continue;
    SmallVector<CallBase *, 8> Calls;
    for (Instruction &I : instructions(F))
      if (auto *Call = dyn_cast<CallBase>(&I); Call && Call->getCalledFunction() && C.Outputs.count(Call->getCalledFunction()->getName()))
        Calls.push_back(Call);
    for (CallBase *Call : Calls) {
      std::string Why = announce(*Call, *Call->getCalledFunction(), C, F.getName(), "__sf_output_outside");
      if (!Why.empty())
        stop(whereIs(*Call) + ": " + Why);
    }
  }
}

static void treatCall(CallBase &Call, Module &M, const Config &C, const Clones &Made, Report &R, StringRef Id) {
  LLVMContext &Ctx = M.getContext();
  if (auto *II = dyn_cast<IntrinsicInst>(&Call)) {
    StringRef Name = Intrinsic::getBaseName(II->getIntrinsicID());
    bool IsVector = Name.starts_with("llvm.masked.") || Name.starts_with("llvm.vp.") || Name.contains(".avx");
    if (!isHarmless(*II))
      refuse(Call, R, Id,
             ("the compiler's operation " + Name +
              (IsVector ? " (store elements one by one, or compile the file for a processor without it)" : ""))
                 .str());
    return;
  }
  if (auto *Asm = dyn_cast<InlineAsm>(Call.getCalledOperand())) {
    if (!isHarmless(Call, *Asm))
      refuse(Call, R, Id,
             "inline assembly that may touch memory or the machine: '" + Asm->getAsmString() +
                 "' (in a function of its own, which a policy gives a class: pure, once, defer)");
    return;
  }
  if (Call.hasFnAttr(Attribute::ReturnsTwice)) {
    refuse(Call, R, Id, "setjmp or another function that returns twice (return an error instead)");
    return;
  }
  Call.setAttributes(withoutPromises(Ctx, Call.getAttributes(), Call.arg_size()));
  std::string Where = whereIs(Call);
  // What a weak name means, the linker decides: another module may have it, too.
  if (auto *Name = dyn_cast<GlobalAlias>(Call.getCalledOperand()->stripPointerCasts()); Name && Name->isInterposable())
    if (GlobalAlias *Own = M.getNamedAlias((Name->getName() + CloneSuffix).str());
        Own && C.treatmentOf(Name->getName()).How == Class::Hardened) {
      R.once({"C", Id, Name->getName(), "hardened", Where});
      Call.setCalledOperand(Own);
      return;
    }
  auto *Callee = dyn_cast<Function>(Call.getCalledOperand()->stripPointerCastsAndAliases());
  if (!Callee) {
    IRBuilder<> B(&Call);
    Value *Pointer = Call.getCalledOperand();
    // What the loader has chosen is chosen once more: the name's own address may be that of a stub of the linker's.
    if (auto *Chosen = dyn_cast<GlobalIFunc>(Pointer->stripPointerCastsAndAliases()))
      if (Function *By = Chosen->getResolverFunction(); By && By->arg_empty())
        Pointer = B.CreateCall(By);
    auto Find = M.getOrInsertFunction("__sf_clone", B.getPtrTy(), B.getPtrTy(), B.getPtrTy());
    Call.setCalledOperand(B.CreateCall(Find, {Pointer, text(M, Where)}));
    R.once({"I", Id, Where});
    return;
  }
  StringRef Name = Callee->getName();
  Treatment T = C.treatmentOf(*Callee);
  // Of what may be missing nobody can ask that it be hardened: where it is not, the stub stops the program.
  bool MayBeMissing = T.How == Class::Hardened && Callee->hasExternalWeakLinkage();
  R.once({"C", Id, idOf(*Callee), MayBeMissing ? "weak" : wordOf(T.How), Where});
  if (T.OfLibrary && (T.How == Class::Pure || T.How == Class::Once || T.How == Class::Defer))
    R.once({"B", Name});

  std::string Why = announce(Call, *Callee, C, Id, "__sf_output");
  if (!Why.empty()) {
    refuse(Call, R, Id, Why);
    return;
  }

  switch (T.How) {
  case Class::Local:
  case Class::Pure:
    return;
  case Class::Native: {
    FunctionCallee Own = M.getOrInsertFunction(T.Text, Call.getFunctionType());
    // The runtime knows the C++ library by weak names, which take nothing out of an archive: the program asks for it.
    std::string Wanted = ("__sf_wanted." + Name).str();
    if (Name.starts_with("_ZNKSt") || Name.starts_with("_ZNSt") || Name.starts_with("_ZSt") || Name.starts_with("__cxa_"))
      if (!M.getNamedGlobal(Wanted))
        appendToUsed(M, {new GlobalVariable(M, Callee->getType(), true, GlobalValue::PrivateLinkage, Callee, Wanted)});
    Call.setCalledOperand(Own.getCallee());
    Call.setCallingConv(CallingConv::C);
    return;
  }
  case Class::Once: {
    SmallVector<Value *, 6> Arguments(Call.args());
    if (!makeOnce(Call, Name, Arguments))
      refuse(Call, R, Id,
             ("a call of " + Name +
              " in a form that cannot be replayed (arguments and result of up to 64 "
              "bits, no exception)")
                 .str());
    return;
  }
  case Class::Defer:
    if (!makeDeferred(Call, *Callee))
      refuse(Call, R, Id,
             ("a call of " + Name +
              " in a form that cannot be deferred (result unused, up to six "
              "integers or pointers, no exception)")
                 .str());
    return;
  case Class::Refuse:
    refuse(Call, R, Id, ("a call of " + Name + ": " + T.Text).str());
    return;
  case Class::Wrap: {
    // Inside the wrapper itself the name means the function that it wraps.
    if (Id != T.Text && !Id.ends_with(":" + T.Text)) {
      Function *Other = M.getFunction(T.Text);
      if (!Other)
        Other = Function::Create(Callee->getFunctionType(), GlobalValue::ExternalLinkage, T.Text, M);
      R.once({"C", Id, idOf(*Other), "hardened", Where});
      Function *Clone = Made.lookup(Other);
      if (Clone && Clone->getFunctionType() != Call.getFunctionType()) {
        refuse(Call, R, Id, ("a call of " + Name + " with other arguments than its wrapper " + T.Text).str());
        return;
      }
      Call.setCallingConv(Other->getCallingConv());
      Call.setCalledOperand(Clone ? Clone : cloneInOtherModule(M, *Other, Call.getFunctionType()));
      return;
    }
    [[fallthrough]];
  }
  case Class::Hardened:
    break;
  }
  Function *Clone = Made.lookup(Callee);
  Call.setCalledOperand(Clone ? Clone : cloneInOtherModule(M, *Callee, Call.getFunctionType()));
}

// What a policy says of calls of a function without hardened code, as a function for pointers to it. Nothing where its arguments
// or its result do not allow that.
static Function *byPointer(Module &M, const Config &C, const Clones &Made, Report &R, Function &F) {
  Treatment T = C.treatmentOf(F);
  if (T.How == Class::Wrap) {
    Function *Other = M.getFunction(T.Text);
    if (!Other)
      Other = Function::Create(F.getFunctionType(), GlobalValue::ExternalLinkage, T.Text, M);
    R.once({"C", idOf(F), idOf(*Other), "hardened", M.getSourceFileName()});
    Function *Clone = Made.lookup(Other);
    return Clone ? Clone : cloneInOtherModule(M, *Other, F.getFunctionType());
  }
  if (F.isVarArg() || (T.How == Class::Defer && !F.getReturnType()->isVoidTy()))
    return nullptr;
  Function *Thunk = Function::Create(F.getFunctionType(), GlobalValue::InternalLinkage, F.getName() + ".sf.pointer", M);
  Thunk->setCallingConv(F.getCallingConv());
  Thunk->setAttributes(withoutPromises(M.getContext(), F.getAttributes(), F.arg_size()));
  IRBuilder<> B(BasicBlock::Create(M.getContext(), "", Thunk));
  SmallVector<Value *, 6> Arguments;
  for (Argument &A : Thunk->args())
    Arguments.push_back(&A);
  CallInst *Call = B.CreateCall(&F, Arguments);
  Call->setCallingConv(F.getCallingConv());
  Call->setAttributes(withoutPromises(M.getContext(), F.getAttributes(), F.arg_size()));
  if (F.getReturnType()->isVoidTy())
    B.CreateRetVoid();
  else
    B.CreateRet(Call);
  if (T.How == Class::Once ? makeOnce(*Call, F.getName(), Arguments) : makeDeferred(*Call, F)) {
    if (T.OfLibrary)
      R.once({"B", F.getName()});
    return Thunk;
  }
  Thunk->eraseFromParent();
  return nullptr;
}

// Originals that pointers may lead to, with what hardened code calls instead.
static void clonesByPointer(Module &M, const Config &C, const Clones &Made, Report &R) {
  LLVMContext &Ctx = M.getContext();
  Type *Pointer = PointerType::getUnqual(Ctx);
  auto *Pair = StructType::get(Pointer, Pointer);
  SmallVector<GlobalValue *, 16> Entries;
  auto add = [&](Function &Original, Constant *Hardened) {
    auto *G = new GlobalVariable(M, Pair, true, GlobalValue::PrivateLinkage, ConstantStruct::get(Pair, {&Original, Hardened}),
                                 "__sf_clone_entry");
    G->setSection("sf_clones");
    G->setAlignment(Align(8));
    // A function that no other module can name is gone when the linker keeps another module's group.
    if (Original.hasLocalLinkage() && Original.hasComdat())
      G->setComdat(Original.getComdat());
    Entries.push_back(G);
    R.once({"A", idOf(Original)});
  };
  SmallVector<Function *, 64> Functions;
  for (Function &F : M)
    Functions.push_back(&F);
  for (Function *F : Functions) {
    if (F->isIntrinsic() || F->getName().starts_with("__sf_"))
      continue;
    if (Function *Clone = Made.lookup(F)) {
      // Another module may take the address of what this one exports.
      if (!F->hasLocalLinkage() || isAddressTaken(*F))
        add(*F, Clone);
      continue;
    }
    if (!isAddressTaken(*F))
      continue;
    Treatment T = C.treatmentOf(*F);
    // Behind a pointer nobody would give it the run's own copies (state.cpp).
    bool NeedsOwn = C.Dup && F->getName() != "free";
    if (!NeedsOwn && (T.How == Class::Pure || T.How == Class::Local))
      add(*F, F);
    else if (!NeedsOwn && T.How == Class::Native)
      add(*F, cast<Constant>(M.getOrInsertFunction(T.Text, F->getFunctionType()).getCallee()));
    else if (!NeedsOwn && (T.How == Class::Once || T.How == Class::Defer || T.How == Class::Wrap))
      if (Function *Instead = byPointer(M, C, Made, R, *F))
        add(*F, Instead);
  }
  appendToUsed(M, Entries);
}

const Value *atomicTarget(const Instruction &I) {
  if (auto *Change = dyn_cast<AtomicRMWInst>(&I))
    return Change->getPointerOperand();
  if (auto *Swap = dyn_cast<AtomicCmpXchgInst>(&I))
    return Swap->getPointerOperand();
  auto *Store = dyn_cast<StoreInst>(&I);
  return Store && Store->isAtomic() ? Store->getPointerOperand() : nullptr;
}

// Where the handler has stored to the same bytes before, an atomic operation is logged and done in both runs like these stores: the log
// would put back what the operation has left. Elsewhere I stays, to be done once.
static void loggedOrOnce(Instruction &I) {
  Module &M = *I.getModule();
  IRBuilder<> B(&I);
  Value *At = const_cast<Value *>(atomicTarget(I));
  Type *T = isa<StoreInst>(I)           ? cast<StoreInst>(I).getValueOperand()->getType()
            : isa<AtomicCmpXchgInst>(I) ? cast<AtomicCmpXchgInst>(I).getNewValOperand()->getType()
                                        : cast<AtomicRMWInst>(I).getValOperand()->getType();
  Value *Size = B.getInt64(M.getDataLayout().getTypeStoreSize(T).getFixedValue());
  auto Logged = M.getOrInsertFunction("__sf_atomic_logged", B.getInt32Ty(), B.getPtrTy(), B.getInt64Ty());
  auto Before = M.getOrInsertFunction("__sf_log", B.getVoidTy(), B.getPtrTy(), B.getInt64Ty());
  auto Behind = M.getOrInsertFunction("__sf_logged", B.getVoidTy(), B.getPtrTy(), B.getInt64Ty());
  Value *Is = B.CreateICmpNE(B.CreateCall(Logged, {At, Size}), B.getInt32(0));
  Instruction *Then, *Else;
  SplitBlockAndInsertIfThenElse(Is, &I, &Then, &Else);
  BasicBlock *After = I.getParent();
  Instruction *Both = I.clone();
  B.SetInsertPoint(Then);
  B.CreateCall(Before, {At, Size});
  Both->insertBefore(Then);
  B.CreateCall(Behind, {At, Size});
  I.moveBefore(Else);
  if (I.getType()->isVoidTy() || I.use_empty())
    return;
  auto *Result = PHINode::Create(I.getType(), 2, "", After->begin());
  I.replaceAllUsesWith(Result);
  Result->addIncoming(Both, Then->getParent());
  Result->addIncoming(&I, Else->getParent());
}

static bool fitsWords(const Instruction &I) {
  return all_of(I.operands(), [](const Use &U) { return fitsWord(U->getType()); });
}

// Labels that may be another's (labels.h).
static void treatLabels(Function &Original, Function &Clone, Report &R, StringRef Id) {
  SmallVector<Instruction *, 2> Jumps;
  for (Instruction &I : instructions(Clone))
    if (isa<IndirectBrInst>(I))
      Jumps.push_back(&I);
  if (Jumps.empty() || labelsOf(Original).Stay)
    return;
  for (Instruction *I : Jumps)
    refuse(*I, R, Id, "a goto to a label that is kept in memory (keep a number, and use switch)");
}

void treatCalls(Module &M, const Config &C, const Clones &Made, Report &R) {
  for (auto &[Original, Clone] : Made) {
    std::string Id = originalId(*Clone);
    splitLanes(*Clone, C.Dup || C.Crc);
    SmallVector<CallBase *, 64> Calls;
    for (Instruction &I : instructions(*Clone))
      if (auto *Call = dyn_cast<CallBase>(&I))
        Calls.push_back(Call);
    for (CallBase *Call : Calls)
      treatCall(*Call, M, C, Made, R, Id);
    treatLabels(*Original, *Clone, R, Id);
    // Atomic operations: what they do cannot be taken back, so they are done once or not at all.
    SmallVector<Instruction *, 8> Atomics;
    for (Instruction &I : instructions(*Clone))
      if (atomicTarget(I))
        Atomics.push_back(&I);
    for (Instruction *I : Atomics) {
      SmallVector<Value *, 4> Operands(I->operands());
      if (isScratch(atomicTarget(*I))) {
        R.once({"L", whereIs(*I), "atomic operation on this function's own frame"});
        continue;
      }
      // With copies, and with a second run elsewhere, an operation has one place only.
      if (C.AtomicsOnce && !C.Dup && !C.Crc && !C.Async && fitsWords(*I))
        loggedOrOnce(*I);
      if (!C.AtomicsOnce || !makeOnce(*I, "an atomic operation", Operands))
        refuse(*I, R, Id, "an atomic operation (`atomics-once` in a policy: done once and replayed, if it is of up to 64 bits)");
      else
        R.once({"L", whereIs(*I), "atomic operation, done once and replayed"});
    }
  }
  for (GlobalAlias &Alias : M.aliases())
    if (auto *F = dyn_cast<Function>(Alias.getAliasee()->stripPointerCasts()); F && Made.count(F))
      R.once({"S", Alias.getName(), idOf(*F)});
  clonesByPointer(M, C, Made, R);
}

} // namespace steadfast
