"""Reviews: questions about the caller, or about a token, that are answered at once and not stored."""

from corelane.embedded.apiserver.schema.notation import META, record
from corelane.embedded.apiserver.schema.object_meta import kind

AUTHENTICATION = "io.k8s.api.authentication.v1."
AUTHORIZATION = "io.k8s.api.authorization.v1."

record("UserInfo", "username=1 uid=2 groups:[]string=3", package=AUTHENTICATION)
record("SelfSubjectReviewStatus", "userInfo+:UserInfo=1", package=AUTHENTICATION)
SELF_SUBJECT_REVIEW = kind("SelfSubjectReview", "status+:SelfSubjectReviewStatus=2", package=AUTHENTICATION)

record("TokenReviewSpec", "token=1 audiences:[]string=2", package=AUTHENTICATION)
record(
    "TokenReviewStatus",
    "authenticated:bool=1 user+:UserInfo=2 audiences:[]string=4 error=3",
    package=AUTHENTICATION,
)
TOKEN_REVIEW = kind(
    "TokenReview", "spec!:TokenReviewSpec=2 status+:TokenReviewStatus=3", package=AUTHENTICATION
)

record("FieldSelectorRequirement", "key!=1 operator!=2 values:[]string=3", package=META)
record(
    "FieldSelectorAttributes",
    "rawSelector=1 requirements:[]FieldSelectorRequirement=2",
    package=AUTHORIZATION,
)
record(
    "LabelSelectorAttributes",
    "rawSelector=1 requirements:[]LabelSelectorRequirement=2",
    package=AUTHORIZATION,
)
record(
    "ResourceAttributes",
    "namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7 "
    "fieldSelector?:FieldSelectorAttributes=8 labelSelector?:LabelSelectorAttributes=9",
    package=AUTHORIZATION,
)
record("NonResourceAttributes", "path=1 verb=2", package=AUTHORIZATION)
record(
    "SelfSubjectAccessReviewSpec",
    "resourceAttributes?:ResourceAttributes=1 nonResourceAttributes?:NonResourceAttributes=2",
    package=AUTHORIZATION,
)
record(
    "SubjectAccessReviewStatus",
    "allowed!:bool=1 denied:bool=4 reason=2 evaluationError=3",
    package=AUTHORIZATION,
)
ACCESS_REVIEW = kind(
    "SelfSubjectAccessReview",
    "spec+:SelfSubjectAccessReviewSpec=2 status+:SubjectAccessReviewStatus=3",
    package=AUTHORIZATION,
)

record("SelfSubjectRulesReviewSpec", "namespace=1", package=AUTHORIZATION)
record(
    "ResourceRule",
    "verbs!:[]string=1 apiGroups:[]string=2 resources:[]string=3 resourceNames:[]string=4",
    package=AUTHORIZATION,
)
record("NonResourceRule", "verbs!:[]string=1 nonResourceURLs:[]string=2", package=AUTHORIZATION)
record(
    "SubjectRulesReviewStatus",
    "resourceRules!:[]ResourceRule=1 nonResourceRules!:[]NonResourceRule=2 incomplete!:bool=3 "
    "evaluationError=4",
    package=AUTHORIZATION,
)
RULES_REVIEW = kind(
    "SelfSubjectRulesReview",
    "spec+:SelfSubjectRulesReviewSpec=2 status+:SubjectRulesReviewStatus=3",
    package=AUTHORIZATION,
)
