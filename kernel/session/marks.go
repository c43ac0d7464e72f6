package session

import (
	"fmt"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// The key of what is known of the age of a topic's records is prefix and the topic's
// UUID.
const marksPrefix = "a/"

// MarksPrefix begins the keys of all marks.
func MarksPrefix() []byte { return []byte(marksPrefix) }

// MarksKey is the key of a topic's marks.
func MarksKey(topic kernel.TopicID) []byte { return append([]byte(marksPrefix), topic[:]...) }

// ParseMarksKey takes apart what MarksKey made.
func ParseMarksKey(key []byte) (topic kernel.TopicID, err error) {
	if len(key) != len(marksPrefix)+len(topic) {
		return topic, fmt.Errorf("marks key %q: %w", key, codec.ErrCorrupt)
	}
	copy(topic[:], key[len(marksPrefix):])
	return topic, nil
}

// Mark says that the records below the ends, by partition number of the placement
// group, were there at a time.
type Mark struct {
	At   time.Time
	Ends map[uint64]int64
}

// AppendMarks appends the encoding of a topic's marks, oldest first.
func AppendMarks(b []byte, marks []Mark) []byte {
	b = codec.AppendUint(append(b, Version), uint64(len(marks)))
	for _, m := range marks {
		b = codec.AppendInt(b, m.At.UnixMilli())
		b = codec.AppendUint(b, uint64(len(m.Ends)))
		for part, end := range m.Ends {
			b = codec.AppendInt(codec.AppendUint(b, part), end)
		}
	}
	return b
}

// ReadMarks decodes what AppendMarks wrote.
func ReadMarks(b []byte) ([]Mark, error) {
	rd, _, err := reader(b, Version)
	if err != nil {
		return nil, err
	}
	var marks []Mark
	for n := rd.Count(); n > 0 && rd.Err() == nil; n-- {
		m := Mark{At: time.UnixMilli(rd.Int()), Ends: make(map[uint64]int64)}
		for parts := rd.Count(); parts > 0 && rd.Err() == nil; parts-- {
			part := rd.Uint()
			m.Ends[part] = rd.Int()
		}
		marks = append(marks, m)
	}
	if err := rd.Done(); err != nil {
		return nil, fmt.Errorf("marks: %w", err)
	}
	return marks, nil
}
