package kernel

// PositionKind says how a Position names a place.
type PositionKind uint8

const (
	// AtStart is the first record that is still there, AtEnd behind the last one.
	AtStart PositionKind = iota + 1
	AtEnd
	// AtOffset is the record of that offset.
	AtOffset
	// AtTime is the first record whose timestamp is not before that time, in ms
	// since 1970; if there is none it is the end.
	AtTime
	// AtLast is the last record, the end if there is none.
	AtLast
)

// Position is a place in the partitions of a topic.
type Position struct {
	Kind  PositionKind
	Value int64
}
