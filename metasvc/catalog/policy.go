package catalog

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Those of this file.
const (
	opPutPolicy opKind = 40 + iota
	opDropPolicy
)

// PutPolicy makes a policy or replaces the one of the same name and sort.
// CodeNotFound if its tenant is missing.
type PutPolicy struct{ Policy kernel.Policy }

// DropPolicy removes a policy; an absent one is no error.
type DropPolicy struct {
	Tenant, Name string
	Operator     bool
}

func (PutPolicy) kind() opKind  { return opPutPolicy }
func (DropPolicy) kind() opKind { return opDropPolicy }

func policyKey(tenant string, operator bool, name string) string {
	sort := "p"
	if operator {
		sort = "o"
	}
	return join(tenant, sort, name)
}

func (op PutPolicy) apply(s *State, _ *Result) error {
	p := op.Policy
	if !s.tenants.Has(p.Tenant) {
		return kernel.Errorf(kernel.CodeNotFound, "tenant", p.Tenant, "it does not exist")
	}
	s.policies = s.policies.Put(policyKey(p.Tenant, p.Operator, p.Name), &p)
	return nil
}

func (op DropPolicy) apply(s *State, _ *Result) error {
	s.policies = s.policies.Delete(policyKey(op.Tenant, op.Operator, op.Name))
	return nil
}

// Policy returns a policy or operator policy by name.
func (s *State) Policy(tenant string, operator bool, name string) (*kernel.Policy, bool) {
	return s.policies.Get(policyKey(tenant, operator, name))
}

// Policies calls fn for the policies and operator policies of all tenants, by
// tenant, operator policies first, and name.
func (s *State) Policies(fn func(*kernel.Policy)) { s.policies.Each(fn) }

func (op PutPolicy) append(b []byte) []byte {
	p := &op.Policy
	b = appendStrings(b, p.Tenant, p.Name, p.Pattern, string(p.ApplyTo))
	b = codec.AppendInt(b, int64(p.Priority))
	b = codec.AppendFlags(b, p.Operator)
	return codec.AppendArguments(b, p.Definition)
}

func (op DropPolicy) append(b []byte) []byte {
	return codec.AppendFlags(appendStrings(b, op.Tenant, op.Name), op.Operator)
}

// readPolicy reads an op of this file.
func readPolicy(kind opKind, r *codec.Reader) Op {
	if kind == opDropPolicy {
		op := DropPolicy{Tenant: r.String(), Name: r.String()}
		r.Flags(&op.Operator)
		return op
	}
	p := kernel.Policy{Tenant: r.String(), Name: r.String(), Pattern: r.String(), ApplyTo: kernel.PolicyTarget(r.String())}
	p.Priority = int(r.Int())
	r.Flags(&p.Operator)
	p.Definition = r.Arguments()
	return PutPolicy{p}
}
