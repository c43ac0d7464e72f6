package mqtt

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func someRemains() *remains {
	k := &remains{last: 65535, count: 1 << 50}
	for i := range 5 {
		s := slot{id: uint16(i + 1), qos: 1, stage: due, count: uint64(1000 + i), partition: int32(i), offset: 1 << (10 * i)}
		k.slots = append(k.slots, keptSlot{s, fmt.Sprint("a/", i%2)})
	}
	s := slot{id: 9, qos: 2, stage: taken, pinned: true, count: 7}
	k.retained = append(k.retained, keptRetained{keptSlot{s, "a/0"}, retainedAs{"a/0/x", 77}, 1 << 20})
	return k
}

func TestRemainsRoundTrip(t *testing.T) {
	k := someRemains()
	got, err := readRemains(k.append(nil))
	if err != nil || !reflect.DeepEqual(got, k) {
		t.Errorf("got %+v, %v, want %+v", got, err, k)
	}
	if got, err := readRemains(nil); got != nil || err != nil {
		t.Error(got, err)
	}
}

// TestRemainsAreBounded: what finds no room in the text is left out.
func TestRemainsAreBounded(t *testing.T) {
	k := &remains{}
	for i := range maxInFlight {
		k.slots = append(k.slots, keptSlot{slot{id: uint16(i + 1), qos: 1}, strings.Repeat("x", 60_000)})
		k.retained = append(k.retained, keptRetained{keptSlot{slot{id: uint16(i + 1), qos: 1}, "f"}, retainedAs{strings.Repeat("y", 100), 1}, 0})
	}
	b := k.append(nil)
	if len(b) > maxKept {
		t.Errorf("%d bytes", len(b))
	}
	if got, err := readRemains(b); err != nil || len(got.retained) < 1000 {
		t.Error(err)
	}
}

// FuzzReadRemains: whatever the text is, nothing but an error comes of it.
func FuzzReadRemains(f *testing.F) {
	f.Add(someRemains().append(nil))
	f.Add([]byte{keptVersion, 0xff, 0xff, 0xff})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := readRemains(b)
		if err == nil && k != nil {
			if again, err := readRemains(k.append(nil)); err != nil || !reflect.DeepEqual(again, k) {
				t.Errorf("%+v, %+v, %v", k, again, err)
			}
		}
	})
}
