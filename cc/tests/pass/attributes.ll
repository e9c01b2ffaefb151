; A clone calls the runtime: what the optimiser had found out about the original does not hold for it.
; CHECK: define hidden void @set.sf(ptr %to)
; CHECK: attributes #
; NEVER: define hidden void @set.sf(ptr nocapture
; NEVER: define hidden void @set.sf(ptr noalias
; NEVER: @set.sf(ptr writeonly
define void @set(ptr noalias nocapture writeonly %to) memory(argmem: write) nounwind willreturn {
  store i64 1, ptr %to, align 8
  ret void
}
