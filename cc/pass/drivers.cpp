// The handler's own body becomes its driver:
//
//     if inside a handler: __sf_nested(handler); return clone(arguments)
//                                                           a handler called by a handler is a part of it
//     input, where the policy names one
//     if (__sf_begin(handler)) goto second                  phase I; a retry comes back to here
//     first  = clone(arguments)                             E1
//     __sf_mid(handler, first)                              R
//                                                           1, with --validate=async: the second run comes later, elsewhere
//     second:
//     second = clone(arguments)                             E2
//     __sf_end(handler, second)                             V
//     return second
//
// An exception that leaves the clone is a result like any other: swallowed after E1, compared, thrown again after V.
//
// A run that waits for a condition ends there, as if it returned; the second run then begins at once, from __sf_begin, and
// what follows the wait is two runs again, each with its own frames (runtime/split.c).
//
// Invariants
//  1. The clone is called twice from one frame, so both runs have their frames at the same addresses.
//  2. The two calls are indirect, and nobody can tell that they are of the same function.
//  3. Each run is given arguments that were kept for it when the driver began: what changes one on its way changes it for one run. Not
//     with --protect=sei, which has one set of them as the paper has.
//  4. The driver has a frame pointer: all below it, arguments on the stack included, belongs to the run in progress.

#include "../runtime/layout.h"
#include "harden.h"
#include "place.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Support/ErrorHandling.h"

using namespace llvm;

namespace steadfast {

Value *phaseOf(IRBuilder<> &B) {
  Module &M = *B.GetInsertBlock()->getModule();
  auto *Tls = cast<GlobalVariable>(M.getOrInsertGlobal("__sf_tls", ArrayType::get(B.getInt64Ty(), 4)));
  Tls->setThreadLocalMode(GlobalValue::InitialExecTLSModel);
  return B.CreateLoad(B.getInt64Ty(), B.CreateConstInBoundsGEP1_64(B.getInt8Ty(), B.CreateThreadLocalAddress(Tls), SF_TLS_PHASE));
}

namespace {

class Driver {
public:
  Driver(Module &M, const Config &C, Function &Handler, Function &Clone, const HandlerSpec &Spec)
      : M(M), C(C), Handler(Handler), Clone(Clone), Spec(Spec), B(M.getContext()), Ctx(M.getContext()) {}

  void make(Report &R) {
    std::string Where = whereIs(Handler);
    const char *Kind = Spec.IsLocal ? "local-handler" : Spec.Message ? "edge" : "handler";
    R.line({"H", idOf(Handler), Kind, Where});

    DISubprogram *Scope = Handler.getSubprogram();
    auto Linkage = Handler.getLinkage();
    Constant *Personality = Handler.hasPersonalityFn() ? Handler.getPersonalityFn() : nullptr;
    // A function without anything to clean up has no personality of its own, and throws all the same. C is nounwind, or
    // has been compiled to be thrown through: then the C++ library is there as well, or nobody throws.
    bool MayThrow = !Handler.doesNotThrow();
    if (MayThrow && !Personality) {
      bool Known = M.getNamedValue("__gxx_personality_v0");
      Personality =
          cast<Constant>(M.getOrInsertFunction("__gxx_personality_v0", FunctionType::get(Type::getInt32Ty(Ctx), true)).getCallee());
      if (!Known)
        cast<GlobalValue>(Personality)->setLinkage(GlobalValue::ExternalWeakLinkage);
    }
    Handler.deleteBody();
    Handler.setLinkage(Linkage);
    Handler.setSubprogram(Scope);
    if (Personality)
      Handler.setPersonalityFn(Personality);
    // The new body is no longer what the optimiser has proved things about.
    Handler.removeFnAttr(Attribute::Memory);
    for (auto Kind : {Attribute::WillReturn, Attribute::NoSync, Attribute::NoFree, Attribute::NoRecurse, Attribute::NoCallback,
                      Attribute::Speculatable, Attribute::MustProgress})
      Handler.removeFnAttr(Kind);
    Handler.addFnAttr(Attribute::NoInline);
    Handler.addFnAttr("frame-pointer", "all");
    Handler.removeRetAttr(Attribute::NoAlias);
    for (Argument &A : Handler.args()) {
      for (auto Kind :
           {Attribute::NoAlias, Attribute::NoCapture, Attribute::ReadOnly, Attribute::ReadNone, Attribute::WriteOnly, Attribute::Returned})
        A.removeAttr(Kind);
    }
    if (Handler.isVarArg())
      stop(Twine("a handler cannot take a variable number of arguments: ") + Handler.getName() +
           "\n  fix:   make a function with fixed arguments the handler");
    // What the caller passes on the stack is kept with the driver's frame (runtime/async.c).
    for (Argument &A : Handler.args())
      Passed += alignTo(M.getDataLayout().getTypeAllocSize(A.hasByValAttr() ? A.getParamByValType() : A.getType()).getFixedValue(), 16);
    if (C.Async && Passed > 1024)
      stop(Twine("with --validate=async a handler takes at most 1024 bytes of arguments: ") + Handler.getName() +
           "\n  fix:   pass a pointer");
    if (Scope)
      B.SetCurrentDebugLocation(DILocation::get(Ctx, Scope->getLine(), 0, Scope));

    Result = Handler.getReturnType();
    Descriptor = describe(Where);
    auto *Entry = block("entry"), *Nested = block("nested"), *Outer = block("outer"), *Begin = block("begin");
    B.SetInsertPoint(Entry);
    if (!Result->isVoidTy()) {
      // Cleared, so that padding compares equal.
      Second = B.CreateAlloca(Result);
      First = B.CreateAlloca(Result);
    }
    if (MayThrow)
      Exception = B.CreateAlloca(B.getPtrTy());
    for (Argument &A : Handler.args())
      for (auto &Own : Kept)
        Own.push_back(!C.Sei && isKept(A) ? B.CreateAlloca(A.getType()) : nullptr);
    Value *Phase = phaseOf(B);
    B.CreateCondBr(B.CreateIsNotNull(Phase), Nested, Outer);

    B.SetInsertPoint(Nested);
    B.CreateCall(runtime("__sf_nested", B.getVoidTy(), {B.getPtrTy()}), {Descriptor});
    Value *Inner = callClone(&Clone, arguments());
    Result->isVoidTy() ? B.CreateRetVoid() : B.CreateRet(Inner);

    B.SetInsertPoint(Outer);
    for (int Run : {1, 2})
      for (auto [Slot, A] : zip(Kept[Run - 1], Handler.args()))
        if (Slot)
          B.CreateStore(Run == 2 ? turned(&A) : &A, Slot, /*isVolatile=*/true);
    input();
    B.CreateBr(Begin);

    B.SetInsertPoint(Begin);
    CallInst *Begun = B.CreateCall(runtime("__sf_begin", B.getInt32Ty(), {B.getPtrTy()}), {Descriptor});
    Begun->addFnAttr(Attribute::ReturnsTwice); // a retry comes back to here
    auto *FirstRun = block("first"), *SecondRun = block("second");
    B.CreateCondBr(B.CreateIsNotNull(Begun), SecondRun, FirstRun);
    B.SetInsertPoint(FirstRun);
    Value *One = run(First, MayThrow, 1);
    BasicBlock *Later = nullptr;
    if (C.Async) {
      Value *Handed = B.CreateCall(runtime("__sf_mid", B.getInt32Ty(), {B.getPtrTy(), B.getInt64Ty()}), {Descriptor, One});
      Later = block("later");
      B.CreateCondBr(B.CreateIsNotNull(Handed), Later, SecondRun);
    } else {
      B.CreateCall(runtime("__sf_mid", B.getVoidTy(), {B.getPtrTy(), B.getInt64Ty()}), {Descriptor, One});
      B.CreateBr(SecondRun);
    }
    B.SetInsertPoint(SecondRun);
    Value *Two = run(Second, MayThrow, 2);
    // No result, by which who comes back could be sent to the beginning once more, with an event that has been handled.
    B.CreateCall(runtime("__sf_end", B.getVoidTy(), {B.getPtrTy(), B.getInt64Ty()}), {Descriptor, Two});
    auto *Done = block("done");
    B.CreateBr(Done);
    if (Later) {
      // The second run is another process's, and its result is compared there.
      B.SetInsertPoint(Later);
      if (!Result->isVoidTy())
        B.CreateStore(B.CreateLoad(Result, First), Second);
      B.CreateBr(Done);
    }
    B.SetInsertPoint(Done);
    if (MayThrow) {
      auto *Throw = block("throw"), *Return = block("return");
      Value *Thrown = B.CreateLoad(B.getPtrTy(), Exception);
      B.CreateCondBr(B.CreateIsNotNull(Thrown), Throw, Return);
      B.SetInsertPoint(Throw);
      B.CreateCall(runtime("__sf_throw_again", B.getVoidTy(), {B.getPtrTy()}), {Thrown});
      B.CreateUnreachable();
      B.SetInsertPoint(Return);
    }
    if (Result->isVoidTy())
      B.CreateRetVoid();
    else
      B.CreateRet(B.CreateLoad(Result, Second));
  }

private:
  Module &M;
  const Config &C;
  Function &Handler, &Clone;
  const HandlerSpec &Spec;
  IRBuilder<> B;
  LLVMContext &Ctx;
  Type *Result = nullptr;
  uint64_t Passed = 0; // bytes of arguments, at most
  Constant *Descriptor = nullptr;
  Value *First = nullptr, *Second = nullptr, *Exception = nullptr;
  SmallVector<AllocaInst *, 8> Kept[2]; // arguments, for each run; nothing where the callee has a copy of its own

  BasicBlock *block(const char *Name) { return BasicBlock::Create(Ctx, Name, &Handler); }

  FunctionCallee runtime(const char *Name, Type *Returns, ArrayRef<Type *> Arguments) {
    return M.getOrInsertFunction(Name, FunctionType::get(Returns, Arguments, false));
  }

  Constant *describe(StringRef Where) {
    Type *I64 = B.getInt64Ty(), *Pointer = B.getPtrTy();
    auto *Type = StructType::get(Pointer, Pointer, I64, I64);
    uint64_t Id = xxh3_64bits((Handler.getName() + "@" + Where).str());
    auto *Value = ConstantStruct::get(Type, {text(M, Handler.getName()), text(M, Where), B.getInt64(Id),
                                             B.getInt64((Spec.IsLocal ? uint64_t(SF_HANDLER_LOCAL) : 0) |
                                                        (Spec.IsStream ? uint64_t(SF_HANDLER_STREAM) : 0) | Passed << 8)});
    return new GlobalVariable(M, Type, true, GlobalValue::PrivateLinkage, Value, "__sf_handler");
  }

  SmallVector<Value *, 8> arguments() {
    SmallVector<Value *, 8> All;
    for (Argument &A : Handler.args())
      All.push_back(&A);
    return All;
  }

  static bool isKept(const Argument &A) { return !A.hasPassPointeeByValueCopyAttr() && !A.hasSwiftErrorAttr(); }

  SmallVector<Value *, 8> argumentsOf(int Run) {
    SmallVector<Value *, 8> All = arguments();
    for (unsigned I = 0; I != All.size(); ++I)
      if (AllocaInst *Slot = Kept[Run - 1][I]) {
        All[I] = B.CreateLoad(Slot->getAllocatedType(), Slot, /*isVolatile=*/true);
        if (Run == 2)
          All[I] = turned(All[I]);
      }
    return All;
  }

  // All bits turned round: a frame pointer that has changed finds the same in both places as a rule, nothing.
  Value *turned(Value *V) {
    Type *T = V->getType();
    if (T->isPointerTy())
      return B.CreateIntToPtr(B.CreateNot(B.CreatePtrToInt(V, B.getInt64Ty())), T);
    if (unsigned Bits = isa<ScalableVectorType>(T) ? 0 : T->getPrimitiveSizeInBits().getFixedValue())
      return B.CreateBitCast(B.CreateNot(B.CreateBitCast(V, B.getIntNTy(Bits))), T);
    return V; // a structure
  }

  // The clone, as a run calls it. Optimisers that go over the module once more (LTO) may neither put its body into both places, where
  // they would compute once what both runs are to compute, nor leave out the second call of what they find to have no effect. The
  // address is made here each time: one register for both runs would be wrong for both.
  Value *hidden() {
    auto *Type = FunctionType::get(B.getPtrTy(), {B.getPtrTy()}, false);
    return B.CreateCall(InlineAsm::get(Type, "leaq ${1:c}(%rip), $0", "=r,i", /*hasSideEffects=*/true), {&Clone});
  }

  Value *callClone(Value *Callee, ArrayRef<Value *> Arguments) {
    CallInst *Call = B.CreateCall(Clone.getFunctionType(), Callee, Arguments);
    Call->setCallingConv(Clone.getCallingConv());
    Call->setAttributes(Clone.getAttributes().removeFnAttributes(Ctx));
    return Call;
  }

  // One run; gives its result as a word.
  Value *run(Value *Keep, bool MayThrow, int Which) {
    Type *I64 = B.getInt64Ty();
    Value *Returned;
    BasicBlock *After = nullptr, *Caught = nullptr;
    if (MayThrow) {
      After = block("after");
      Caught = block("caught");
      auto *Normal = block("normal");
      auto *Call = B.CreateInvoke(Clone.getFunctionType(), hidden(), Normal, Caught, argumentsOf(Which));
      Call->setCallingConv(Clone.getCallingConv());
      Call->setAttributes(Clone.getAttributes().removeFnAttributes(Ctx));
      Returned = Call;
      B.SetInsertPoint(Normal);
      B.CreateStore(Constant::getNullValue(B.getPtrTy()), Exception);
    } else {
      Returned = callClone(hidden(), argumentsOf(Which));
    }
    Value *Word = word(Returned, Keep);
    if (!MayThrow)
      return Word;
    BasicBlock *From = B.GetInsertBlock();
    B.CreateBr(After);
    B.SetInsertPoint(Caught);
    auto *Pad = B.CreateLandingPad(StructType::get(B.getPtrTy(), B.getInt32Ty()), 1);
    Pad->addClause(ConstantPointerNull::get(B.getPtrTy()));
    Value *Object = B.CreateExtractValue(Pad, 0);
    Value *Other = B.CreateCall(runtime("__sf_caught", I64, {B.getPtrTy(), B.getInt32Ty()}), {Object, B.getInt32(Which)});
    B.CreateStore(Object, Exception);
    B.CreateBr(After);
    B.SetInsertPoint(After);
    PHINode *Both = B.CreatePHI(I64, 2);
    Both->addIncoming(Word, From);
    Both->addIncoming(Other, Caught);
    return Both;
  }

  Value *word(Value *V, Value *Keep) {
    Type *I64 = B.getInt64Ty();
    if (Result->isVoidTy())
      return B.getInt64(0);
    const DataLayout &Layout = M.getDataLayout();
    uint64_t Size = Layout.getTypeAllocSize(Result).getFixedValue();
    if (Result->isIntegerTy() && Result->getIntegerBitWidth() <= 64) {
      B.CreateStore(V, Keep);
      return B.CreateZExt(V, I64);
    }
    if (Result->isPointerTy()) {
      B.CreateStore(V, Keep);
      return B.CreatePtrToInt(V, I64);
    }
    B.CreateMemSet(Keep, B.getInt8(0), Size, Align(1));
    B.CreateStore(V, Keep);
    return B.CreateCall(runtime("__sf_hash", I64, {B.getPtrTy(), I64}), {Keep, B.getInt64(Size)});
  }

  void input() {
    if (!Spec.Message)
      return;
    const Bytes &In = *Spec.Message;
    std::string Why;
    auto place = [&](StringRef Text) {
      SmallVector<Value *, 8> All = arguments();
      Value *V = placeOf(B, Handler, All, Text, Why);
      if (!V)
        stop("the policy's input of handler " + Handler.getName() + " does not fit: " + Why);
      return V;
    };
    BasicBlock *After = nullptr;
    if (!In.Unless.empty()) {
      auto *Then = block("message");
      After = block("no_message");
      B.CreateCondBr(B.CreateIsNull(B.CreateAnd(place(In.Unless), In.Mask)), Then, After);
      B.SetInsertPoint(Then);
    }
    if (Spec.IsStream)
      B.CreateCall(runtime("__sf_stream", B.getVoidTy(), {}), {});
    Value *Message = B.CreateIntToPtr(place(In.Pointer), B.getPtrTy());
    if (In.Length.empty())
      B.CreateCall(runtime(In.IsCrlf   ? "__sf_edge_crlf"
                           : In.IsLine ? "__sf_edge_line"
                                       : "__sf_edge_string",
                           B.getVoidTy(), {B.getPtrTy()}),
                   {Message});
    else
      B.CreateCall(runtime("sf_input_edge", B.getVoidTy(), {B.getPtrTy(), B.getInt64Ty()}), {Message, place(In.Length)});
    if (After) {
      B.CreateBr(After);
      B.SetInsertPoint(After);
    }
  }
};

} // namespace

void makeDrivers(Module &M, const Config &C, const Clones &Made, Report &R) {
  for (auto &[Original, Clone] : Made)
    if (auto Spec = C.Handlers.find(Original->getName()); Spec != C.Handlers.end())
      Driver(M, C, *Original, *Clone, Spec->second).make(R);
}

} // namespace steadfast
