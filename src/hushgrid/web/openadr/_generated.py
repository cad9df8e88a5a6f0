"""Models of OpenADR 3.1.0.

Generated from its specification by scripts/openadr_models.py, which lists the changes: do not edit.
Copyright the OpenADR Alliance. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from re import compile
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from hushgrid.web.openadr import DateTime, Members, Query


class ProgramDescription(Members):
    URL: Annotated[str, Field(max_length=8000, min_length=2)]


class Point(Members):
    x: float
    y: float


ObjectID = TypeAliasType(
    "ObjectID", Annotated[str, Field(max_length=128, min_length=1, pattern="^[a-zA-Z0-9_-]*$")]
)


ClientID = TypeAliasType("ClientID", Annotated[str, Field(max_length=128, min_length=1)])


VenName = TypeAliasType("VenName", Annotated[str, Field(max_length=128, min_length=1)])


ClientName = TypeAliasType("ClientName", Annotated[str, Field(max_length=128, min_length=1)])


Target = TypeAliasType("Target", Annotated[str, Field(max_length=128, min_length=1)])


ResourceName = TypeAliasType("ResourceName", Annotated[str, Field(max_length=128, min_length=1)])


Units = TypeAliasType("Units", Annotated[str | None, Field(max_length=128, min_length=1)])


ReadingType = TypeAliasType(
    "ReadingType", Annotated[str | None, Field(max_length=128, min_length=1)]
)


ObjectTypes = TypeAliasType(
    "ObjectTypes", Literal["PROGRAM", "EVENT", "REPORT", "SUBSCRIPTION", "VEN", "RESOURCE"]
)


Duration = TypeAliasType(
    "Duration",
    Annotated[
        str,
        Field(
            pattern=compile(
                "^(-?)P(?=[0-9]|T[0-9])(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)([DW]))?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\\.[0-9]+)?)S)?)?(?!\\n)$"
            )
        ),
    ],
)


class ClientCredentialRequest(Members):
    grant_type: Literal["client_credentials"]
    client_id: Annotated[str, Field(max_length=4096, min_length=1)]
    client_secret: Annotated[str, Field(max_length=4096, min_length=1)]
    scope: Annotated[str | None, Field(max_length=4096, min_length=0)] = None


class ClientCredentialResponse(Members):
    access_token: Annotated[str, Field(max_length=4096, min_length=1)]
    token_type: Literal["Bearer"]
    expires_in: int | None = None
    refresh_token: Annotated[str | None, Field(max_length=4096, min_length=1)] = None
    scope: Annotated[str | None, Field(max_length=4096, min_length=0)] = None


class AuthError(Members):
    error: Literal[
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "invalid_scope",
        "unauthorized_client",
        "unsupported_grant_type",
    ]
    error_description: str | None = None
    error_uri: Annotated[str | None, Field(max_length=8000, min_length=2)] = None


class AuthServerInfo(Members):
    tokenURL: Annotated[str, Field(max_length=8000, min_length=2)]


class Problem(Members):
    type: Annotated[str | None, Field(max_length=8000, min_length=2)] = "about:blank"
    title: str | None = None
    status: Annotated[int | None, Field(ge=100, lt=600)] = None
    detail: str | None = None
    instance: Annotated[str | None, Field(max_length=8000, min_length=3)] = None


class MqttNotifierAuthenticationAnonymous(Members):
    method: Literal["ANONYMOUS"]


class MqttNotifierAuthenticationOauth2BearerToken(Members):
    method: Literal["OAUTH2_BEARER_TOKEN"]
    username: str


class MqttNotifierAuthenticationCertificate(Members):
    method: Literal["CERTIFICATE"]
    caCert: str
    clientCert: str
    clientKey: str


class NotifierOperationsTopics(Members):
    CREATE: str | None = None
    UPDATE: str
    DELETE: str
    ALL: str | None = None


class NotifierTopicsResponse(Members):
    topics: NotifierOperationsTopics


class ProgramsGetParametersQuery(Query):
    targets: list[Target] | None = None
    skip: Annotated[int, Field(ge=0, le=2147483647)] = 0
    limit: Annotated[int, Field(ge=0, le=50)] = 50


class ReportsGetParametersQuery(Query):
    programID: ObjectID | None = None
    eventID: ObjectID | None = None
    clientName: ClientName | None = None
    skip: Annotated[int, Field(ge=0, le=2147483647)] = 0
    limit: Annotated[int, Field(ge=0, le=50)] = 50


class EventsGetParametersQuery(Query):
    programID: ObjectID | None = None
    targets: list[Target] | None = None
    skip: Annotated[int, Field(ge=0, le=2147483647)] = 0
    limit: Annotated[int, Field(ge=0, le=50)] = 50
    active: bool | None = None


class SubscriptionsGetParametersQuery(Query):
    programID: ObjectID | None = None
    clientName: ClientName | None = None
    objects: list[ObjectTypes] | None = None
    skip: Annotated[int, Field(ge=0, le=2147483647)] = 0
    limit: Annotated[int, Field(ge=0, le=50)] = 50


class VensGetParametersQuery(Query):
    venName: VenName | None = None
    targets: list[Target] | None = None
    skip: Annotated[int, Field(ge=0, le=2147483647)] = 0
    limit: Annotated[int, Field(ge=0, le=50)] = 50


class ResourcesGetParametersQuery(Query):
    resourceName: ResourceName | None = None
    venID: ObjectID | None = None
    targets: list[Target] | None = None
    skip: Annotated[int, Field(ge=0, le=2147483647)] = 0
    limit: Annotated[int, Field(ge=0, le=50)] = 50


class ObjectOperation(Members):
    objects: list[ObjectTypes]
    operations: list[Literal["READ", "CREATE", "UPDATE", "DELETE", "GET", "POST", "PUT"]]
    callbackUrl: Annotated[
        str,
        Field(
            max_length=8000,
            min_length=2,
            pattern="^https?://([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:.]+\\])(:[0-9]{1,5})?([/?][!-~]*)?$",
        ),
    ]
    bearerToken: Annotated[str | None, Field(max_length=4096, pattern="^[!-~]*$")] = None


class SubscriptionRequest(Members):
    clientName: ClientName
    programID: ObjectID | None = None
    objectOperations: Annotated[list[ObjectOperation], Field(min_length=1)]
    targets: list[Target] | None = None


class ObjectMetadata(Members):
    id: ObjectID
    createdDateTime: DateTime
    modificationDateTime: DateTime
    objectType: ObjectTypes


class IntervalPeriod(Members):
    start: DateTime | None = None
    duration: Duration | None = "PT0S"
    randomizeStart: Duration | None = "PT0S"


class ValuesMap(Members):
    type: Annotated[str, Field(max_length=128, min_length=1)]
    values: list[float | int | str | bool | Point]


class EventPayloadDescriptor(Members):
    objectType: Literal["EVENT_PAYLOAD_DESCRIPTOR"]
    payloadType: Annotated[str, Field(max_length=128, min_length=1)]
    units: Units | None = None
    currency: str | None = None


class ReportPayloadDescriptor(Members):
    objectType: Literal["REPORT_PAYLOAD_DESCRIPTOR"]
    payloadType: Annotated[str, Field(max_length=128, min_length=1)]
    readingType: ReadingType | None = None
    units: Units | None = None
    accuracy: float | None = None
    confidence: Annotated[int | None, Field(ge=0, le=100)] = None


class ReportDescriptor(Members):
    payloadType: Annotated[str, Field(max_length=128, min_length=1)]
    readingType: ReadingType | None = None
    units: Units | None = None
    targets: list[Target] | None = None
    aggregate: bool | None = False
    startInterval: int | None = -1
    numIntervals: int | None = -1
    historical: bool | None = True
    frequency: int | None = -1
    repeat: int | None = 1
    reportIntervals: Literal["INTERVALS", "SUB_INTERVALS", "OPEN_INTERVALS"] | None = "INTERVALS"


class MqttNotifierBindingObject(Members):
    URIS: list[str]
    serialization: Literal["JSON"]
    authentication: (
        MqttNotifierAuthenticationAnonymous
        | MqttNotifierAuthenticationOauth2BearerToken
        | MqttNotifierAuthenticationCertificate
    )


PayloadDescriptors = TypeAliasType(
    "PayloadDescriptors",
    Annotated[EventPayloadDescriptor | ReportPayloadDescriptor, Field(discriminator="objectType")],
)


class ProgramRequest(Members):
    programName: Annotated[str, Field(max_length=128, min_length=1)]
    intervalPeriod: IntervalPeriod | None = None
    programDescriptions: list[ProgramDescription] | None = None
    payloadDescriptors: list[PayloadDescriptors] | None = None
    attributes: list[ValuesMap] | None = None
    targets: list[Target] | None = None


class Subscription(ObjectMetadata, SubscriptionRequest):
    clientID: ClientID


class Ven(ObjectMetadata):
    clientID: ClientID
    targets: list[Target] | None = None
    venName: VenName
    attributes: list[ValuesMap] | None = None


class BlVenRequest(Members):
    objectType: Literal["BL_VEN_REQUEST"]
    clientID: ClientID
    targets: list[Target] | None = None
    venName: VenName
    attributes: list[ValuesMap] | None = None


class VenVenRequest(Members):
    objectType: Literal["VEN_VEN_REQUEST"]
    venName: VenName
    attributes: list[ValuesMap] | None = None


class Resource(ObjectMetadata):
    clientID: ClientID
    targets: list[Target] | None = None
    resourceName: ResourceName
    venID: ObjectID
    attributes: list[ValuesMap] | None = None


class BlResourceRequest(Members):
    objectType: Literal["BL_RESOURCE_REQUEST"]
    clientID: ClientID
    targets: list[Target] | None = None
    resourceName: ResourceName
    venID: ObjectID
    attributes: list[ValuesMap] | None = None


class VenResourceRequest(Members):
    objectType: Literal["VEN_RESOURCE_REQUEST"]
    resourceName: ResourceName
    venID: ObjectID | None = None
    attributes: list[ValuesMap] | None = None


class Interval(Members):
    id: int
    intervalPeriod: IntervalPeriod | None = None
    payloads: list[ValuesMap]


class NotifiersResponse(Members):
    WEBHOOK: bool
    MQTT: MqttNotifierBindingObject | None = None


SubscriptionsGetResponse = TypeAliasType("SubscriptionsGetResponse", list[Subscription])


VensGetResponse = TypeAliasType("VensGetResponse", list[Ven])


ResourcesGetResponse = TypeAliasType("ResourcesGetResponse", list[Resource])


class Program(ObjectMetadata, ProgramRequest):
    pass


class ReportResource(Members):
    resourceName: ResourceName
    intervalPeriod: IntervalPeriod | None = None
    intervals: list[Interval]


class ReportRequest(Members):
    eventID: ObjectID
    clientName: ClientName
    reportName: Annotated[str | None, Field(max_length=128)] = None
    payloadDescriptors: list[ReportPayloadDescriptor] | None = None
    resources: list[ReportResource]
    programID: ObjectID | None = None


class EventRequest(Members):
    programID: ObjectID
    eventName: str | None = None
    duration: Duration | None = "PT0S"
    priority: Annotated[int | None, Field(ge=0)] = None
    targets: list[Target] | None = None
    reportDescriptors: list[ReportDescriptor] | None = None
    payloadDescriptors: list[EventPayloadDescriptor] | None = None
    intervalPeriod: IntervalPeriod | None = None
    intervals: list[Interval] | None = None


VenRequest = TypeAliasType(
    "VenRequest", Annotated[VenVenRequest | BlVenRequest, Field(discriminator="objectType")]
)


ResourceRequest = TypeAliasType(
    "ResourceRequest",
    Annotated[BlResourceRequest | VenResourceRequest, Field(discriminator="objectType")],
)


ProgramsGetResponse = TypeAliasType("ProgramsGetResponse", list[Program])


class Report(ObjectMetadata, ReportRequest):
    clientID: ClientID


class Event(ObjectMetadata, EventRequest):
    pass


class Notification(Members):
    objectType: ObjectTypes
    operation: Literal["CREATE", "READ", "UPDATE", "DELETE"]
    object: Program | Report | Event | Subscription | Ven | Resource
    targets: list[Target] | None = None


ReportsGetResponse = TypeAliasType("ReportsGetResponse", list[Report])


EventsGetResponse = TypeAliasType("EventsGetResponse", list[Event])
