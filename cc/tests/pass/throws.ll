; A handler that throws and has nothing to clean up: its driver catches what leaves a run. One that cannot throw has no need.
; POLICY: local-handler throws
; POLICY: local-handler quiet
; CHECK: define void @throws(i32 %n)
; CHECK: asm sideeffect "leaq ${1:c}(%rip), $0", "=r,i"(ptr @throws.sf)
; CHECK: invoke void %
; CHECK: landingpad
; CHECK: call void @__sf_throw_again(
; CHECK: define void @quiet(
; CHECK: asm sideeffect "leaq ${1:c}(%rip), $0", "=r,i"(ptr @quiet.sf)
; CHECK: define hidden void @throws.sf(
; CHECK: declare extern_weak i32 @__gxx_personality_v0(...)
define void @throws(i32 %n) {
  call void @raise(i32 %n)
  ret void
}
define void @quiet(i32 %n) nounwind {
  ret void
}
define void @raise(i32 %n) noinline {
  call void @__cxa_throw(ptr null, ptr null, ptr null)
  unreachable
}
declare void @__cxa_throw(ptr, ptr, ptr)
