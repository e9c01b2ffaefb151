; Lines of the source are kept: in the clone, and in what --explain is told.
; CHECK: file.c:7
; CHECK: define hidden void @set.sf(ptr %to)
; CHECK: call __sf_slow8
; CHECK: !dbg
define void @set(ptr %to) !dbg !4 {
  store i64 1, ptr %to, align 8, !dbg !7
  ret void, !dbg !7
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C11, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "file.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 5}
!4 = distinct !DISubprogram(name: "set", file: !1, line: 6, type: !5, unit: !0, spFlags: DISPFlagDefinition)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocation(line: 7, column: 1, scope: !4)
