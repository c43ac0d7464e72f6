package kernel

import "github.com/trivium-mq/trivium/storage/record"

// Record is one message as a publisher hands it in. The kernel copies what it
// keeps before the publishing call returns, so every slice and string in it may
// alias the caller's network buffer.
type Record = record.Record

// Header is one header of a Record. A nil Value is a null value.
type Header = record.Header

// View is one stored message as a consumer sees it. Its slices alias log
// memory: they may be read, never written, and copied when kept.
type View = record.View
