package catalog

import (
	"bytes"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

func TestPoliciesSurviveASnapshot(t *testing.T) {
	limit := []kernel.Argument{{Name: "max-length", Value: int64(5)}, {Name: "overflow", Value: "drop-head"}}
	own := kernel.Policy{Tenant: "/", Name: "p", Pattern: "^a", ApplyTo: kernel.PolicyQueues, Priority: -3, Definition: limit}
	operator := own
	operator.Operator = true
	s := &State{}
	s, _, err := s.Apply([]Op{PutTenant{kernel.Tenant{Name: "/"}}, PutPolicy{own}, PutPolicy{operator}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	if s, err = Read(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []kernel.Policy{own, operator} {
		got, ok := s.Policy("/", want.Operator, "p")
		if !ok || got.Priority != -3 || got.Pattern != "^a" || len(got.Definition) != 2 || got.Definition[0] != limit[0] || got.Operator != want.Operator {
			t.Errorf("operator %v: %+v", want.Operator, got)
		}
	}
	if s, _, err = s.Apply([]Op{DropPolicy{Tenant: "/", Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Policy("/", false, "p"); ok {
		t.Error("it is still there")
	}
	if _, ok := s.Policy("/", true, "p"); !ok {
		t.Error("the operator policy went too")
	}
	if s, _, _ = s.Apply([]Op{DropTenant{"/"}}); s.policies.Len() != 0 {
		t.Error("policies outlive their tenant")
	}
	if _, _, err = s.Apply([]Op{PutPolicy{own}}); kernel.CodeOf(err) != kernel.CodeNotFound {
		t.Errorf("without tenant: %v", err)
	}
}
