package record

import (
	"bytes"
	"reflect"
	"testing"
)

// TestCarried: a view that was carried is equal in all that it tells.
func TestCarried(t *testing.T) {
	for _, r := range []Record{
		{},
		{Key: []byte{}, Value: []byte{}, Timestamp: -5},
		{Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 1<<17), Timestamp: 1 << 41, Headers: []Header{{Key: "a"}, {Key: "", Value: []byte{}}, {Key: "a", Value: []byte("1")}}},
	} {
		var b Builder
		b.SetAttributes(AttrOwn)
		b.Append(&r)
		var it Iter
		if err := it.Reset(b.Bytes(), nil); err != nil || !it.Next() {
			t.Fatal(err)
		}
		it.View().Offset = 1<<40 + 7
		wire := it.View().AppendCarried([]byte("before"))
		if n := len(wire) - len("before"); n > it.View().CarriedSize() {
			t.Errorf("%d bytes, more than %d", n, it.View().CarriedSize())
		}
		var got View
		rest, err := got.ReadCarried(append(wire, "behind"...)[len("before"):])
		if err != nil || string(rest) != "behind" {
			t.Fatalf("%q left, %v", rest, err)
		}
		want := *it.View()
		if !reflect.DeepEqual(got.Record(), want.Record()) || got.Offset != want.Offset || got.Size != want.Size ||
			got.IsOwn() != want.IsOwn() || got.ProducerID != want.ProducerID || got.HeaderCount() != want.HeaderCount() {
			t.Errorf("%+v became %+v", want, got)
		}
		for n := range min(len(wire)-len("before"), 100) {
			if _, err := got.ReadCarried(wire[len("before"):][:n]); err == nil {
				t.Errorf("%d bytes of it are a view", n)
			}
		}
	}
}

// FuzzCarried: no bytes make it panic, and what is read is written the same.
func FuzzCarried(f *testing.F) {
	v := View{Key: []byte("k"), Value: []byte("v"), headerCount: 1, headers: []byte{2, 'a', 1}}
	f.Add(v.AppendCarried(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v, again View
		if _, err := v.ReadCarried(b); err != nil {
			return
		}
		if _, err := again.ReadCarried(v.AppendCarried(nil)); err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%+v became %+v: %v", v, again, err)
		}
	})
}
